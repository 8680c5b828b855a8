// oneTBB's flow graph: a continue_node per task, edges given.
//
// In its favour: the memory of the nodes is kept from run to run, so that no run pays for fresh
// pages, and destroying the graph is not part of the time.
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/version.h>

#include <cstdlib>
#include <new>

#include "graphs.h"

namespace {

using bench::Problem;
using Message = tbb::flow::continue_msg;
using Node = tbb::flow::continue_node<Message>;

// Storage of the nodes; grows, never shrinks.
Node* node_storage(std::int64_t count) {
  static void* memory = nullptr;
  static std::int64_t capacity = 0;
  if (count > capacity) {
    std::free(memory);
    memory = std::malloc(static_cast<std::size_t>(count) * sizeof(Node));
    if (memory == nullptr) throw std::bad_alloc();
    capacity = count;
  }
  return static_cast<Node*>(memory);
}

// A graph under construction. Nodes are numbered in the order in which they are added.
class Builder {
 public:
  Builder(tbb::flow::graph& graph, Node* nodes) : graph_(graph), nodes_(nodes) {}

  template <class Body>
  std::int64_t add(Body body) {
    new (nodes_ + count_) Node(graph_, [body](const Message&) {
      body();
      return Message();
    });
    return count_++;
  }
  void edge(std::int64_t from, std::int64_t to) { tbb::flow::make_edge(nodes_[from], nodes_[to]); }
  void start(std::int64_t root) { nodes_[root].try_put(Message()); }
  std::int64_t count() const { return count_; }

 private:
  tbb::flow::graph& graph_;
  Node* nodes_;
  std::int64_t count_ = 0;
};

void independent(const Problem& p, Builder& b) {
  for (std::int64_t i = 0; i < p.n; ++i) b.add([&p, x = p.x + i] { bench::step(p, x); });
  for (std::int64_t i = 0; i < p.n; ++i) b.start(i);
}

void chain(const Problem& p, Builder& b) {
  for (std::int64_t i = 0; i < p.n; ++i) {
    const std::int64_t node = b.add([&p] { bench::step(p, p.x); });
    if (i > 0) b.edge(node - 1, node);
  }
  b.start(0);
}

void attention(const Problem& p, Builder& b) {
  for (std::int64_t c = 0; c < p.n; ++c) {
    std::int32_t* acc = p.x + c;
    std::int32_t* out = p.out + c;
    for (std::int64_t t = 0; t < p.m; ++t) {
      const std::int64_t node = b.add([&p, acc] { bench::step(p, acc); });
      if (t > 0) b.edge(node - 1, node);
    }
    const std::int64_t merge = b.add([&p, acc, out] { bench::after_one(p, acc, out); });
    b.edge(merge - 1, merge);
  }
  for (std::int64_t c = 0; c < p.n; ++c) b.start(c * (p.m + 1));
}

void wavefront(const Problem& p, Builder& b) {
  for (std::int64_t i = 0; i < p.n; ++i) {
    for (std::int64_t j = 0; j < p.m; ++j) {
      const std::int32_t* up = p.x + p.cell(i, j + 1);
      std::int32_t* left = p.x + p.cell(i + 1, j);
      const auto node = b.add([&p, up, left] { bench::after_two(p, up, left, left + 1); });
      if (i > 0) b.edge(node - p.m, node);
      if (j > 0) b.edge(node - 1, node);
    }
  }
  b.start(0);
}

void stencil(const Problem& p, Builder& b) {
  for (std::int64_t t = 0; t < p.n; ++t) {
    for (std::int64_t i = 0; i < p.m; ++i) {
      const std::int32_t* a = p.x + p.point(t, i);
      std::int32_t* out = p.x + p.point(t + 1, i + 1);
      const std::int64_t node = b.add([&p, a, out] { bench::after_three(p, a, out); });
      if (t == 0) continue;
      if (i > 0) b.edge(node - p.m - 1, node);
      b.edge(node - p.m, node);
      if (i + 1 < p.m) b.edge(node - p.m + 1, node);
    }
  }
  for (std::int64_t i = 0; i < p.m; ++i) b.start(i);
}

void tree(const Problem& p, Builder& b) {
  for (std::int64_t i = 0; i < p.n; ++i) b.add([&p, x = p.x + i] { bench::step(p, x); });
  for (std::int64_t k = 0; k < p.n - 1; ++k) {
    const std::int32_t* a = p.x + 2 * k;
    std::int32_t* out = p.x + p.n + k;
    const std::int64_t node = b.add([&p, a, out] { bench::after_two(p, a, a + 1, out); });
    b.edge(2 * k, node);
    b.edge(2 * k + 1, node);
  }
  for (std::int64_t i = 0; i < p.n; ++i) b.start(i);
}

using Build = void (*)(const Problem&, Builder&);

Build find(std::string_view graph) {
  if (graph == "independent") return independent;
  if (graph == "chain") return chain;
  if (graph == "attention") return attention;
  if (graph == "wavefront") return wavefront;
  if (graph == "stencil") return stencil;
  return graph == "tree" ? tree : nullptr;
}

}  // namespace

const char* bench_version() { return "oneTBB " TBB_VERSION_STRING; }

std::int64_t bench_run(const char* graph, std::int64_t n, std::int64_t m, std::int32_t* x,
                       std::int32_t* out, int workers, std::int64_t iterations,
                       std::int64_t* teardown_ns) {
  const Problem p{graph, n, m, x, out, workers, iterations};
  const Build build = find(p.graph);
  if (build == nullptr) return -1;
  const tbb::global_control threads(tbb::global_control::max_allowed_parallelism,
                                    static_cast<std::size_t>(workers));
  tbb::task_arena arena(workers);
  arena.initialize();
  std::int64_t took = 0;
  arena.execute([&] {
    const std::int64_t begin = bench::now_ns();
    Node* nodes = node_storage(p.tasks());
    std::int64_t end = 0;
    {
      tbb::flow::graph flow;
      Builder builder(flow, nodes);
      build(p, builder);
      flow.wait_for_all();
      end = bench::now_ns();
      for (std::int64_t k = 0; k < builder.count(); ++k) nodes[k].~Node();
    }
    took = end - begin;
    *teardown_ns = bench::now_ns() - end;
  });
  return took;
}
