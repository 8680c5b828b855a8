#include "ptowsp/cursor.h"

#include <string>

#include "fixtures.h"

using namespace ptowsp;
using namespace ptowsp::test;

namespace {

// The events of a whole walk as text: "(" group, "|" phase, ")" end, tasks by site and indices.
std::string walk(const BoundPlan& plan, bool hand_over = false) {
  std::string text;
  Cursor cursor = Cursor::at_entry(plan, 0);
  Error error;
  while (true) {
    if (hand_over) cursor = Cursor(cursor);  // a copy goes on where the original stood
    switch (cursor.advance(plan, &error)) {
      case Event::Task:
        text += static_cast<char>('a' + cursor.site);
        for (u32 l = 0; l < plan.sites()[cursor.site].level; ++l) {
          text += std::to_string(cursor.vars[l]);
        }
        text += " ";
        break;
      case Event::Fork:  // only where a schedule asks for it
        return text + "fork";
      case Event::GroupOpen:
        text += "( ";
        break;
      case Event::PhaseNext:
        text += "| ";
        break;
      case Event::GroupClose:
        text += ") ";
        break;
      case Event::Load:
      case Event::Drain:
      case Event::Channel:  // of processes, which a Network advances
      case Event::Left:
      case Event::Switch:
        return text + "waits";
      case Event::Done:
        return text;
      case Event::Error:
        return text + "error: " + error.message;
    }
  }
}

struct Nest {
  PlanMaker m;
  u32 x, k;
  std::vector<float> data = std::vector<float>(64);
  Nest() {
    x = m.tensor("X", 1);
    k = m.kernel("k", {AccessMode::OUT});
  }
  void task() { m.task(k, {m.element(x, AccessMode::OUT, {m.number(0)})}); }
  std::string run(bool hand_over = false) {
    Loaded p(&m, {bind_data(m.symbol_of(x), data.data(), DType::F32, {64})});
    return p.bound == nullptr ? p.error.message : walk(*p.bound, hand_over);
  }
};

}  // namespace

TEST(parallel_loops_are_quiet) {
  Nest n;
  n.m.loop(Op::PARALLEL_FOR, "i", n.m.number(2));
  n.m.loop(Op::PARALLEL_FOR, "j", n.m.number(2));
  n.task();
  n.m.end();
  n.task();
  n.m.end();
  CHECK_EQ(n.run(), std::string("a00 a01 b0 a10 a11 b1 "));
}

TEST(sequential_loops_announce_phases) {
  Nest n;
  n.m.loop(Op::FOR_EACH, "i", n.m.number(3));
  n.task();
  n.m.end();
  CHECK_EQ(n.run(), std::string("( a0 | a1 | a2 ) "));
}

TEST(steps_of_a_sequential_block_are_phases) {
  Nest n;
  n.m.open(Op::SEQUENTIAL);
  n.task();
  n.m.open(Op::COMBINE);
  n.task();
  n.task();
  n.m.end();
  n.m.loop(Op::PARALLEL_FOR, "i", n.m.number(2));
  n.task();
  n.m.end();
  n.m.end();
  n.task();
  CHECK_EQ(n.run(), std::string("( a | b c | d0 d1 ) e "));
}

TEST(an_empty_step_is_still_a_phase) {
  Nest n;
  n.m.open(Op::SEQUENTIAL);
  n.m.loop(Op::PARALLEL_FOR, "i", n.m.number(0));
  n.task();
  n.m.end();
  n.task();
  n.m.end();
  CHECK_EQ(n.run(), std::string("( | b ) "));
}

TEST(nested_sequential_blocks_and_hand_over_at_every_event) {
  for (const bool hand_over : {false, true}) {
    Nest n;
    n.m.loop(Op::FOR_EACH, "i", n.m.number(2));
    n.m.open(Op::SEQUENTIAL);
    n.task();
    n.m.open(Op::SEQUENTIAL);
    n.task();
    n.task();
    n.m.end();
    n.m.end();
    n.m.end();
    CHECK_EQ(n.run(hand_over), std::string("( ( a0 | ( b0 | c0 ) ) | ( a1 | ( b1 | c1 ) ) ) "));
  }
}

TEST(a_negative_extent_is_an_error) {
  Nest n;
  n.m.loop(Op::PARALLEL_FOR, "i", n.m.number(-2));
  n.task();
  n.m.end();
  CHECK_EQ(n.run(), std::string("error: axis 'i' has the negative extent -2"));
}

TEST(cursor_is_plain_data) {
  static_assert(std::is_trivially_copyable_v<Cursor>);
  static_assert(std::is_standard_layout_v<Cursor>);
  static_assert(sizeof(CursorFrame) == 24);
  CHECK(sizeof(Cursor) <= 2048);
}

PTOWSP_TEST_MAIN
