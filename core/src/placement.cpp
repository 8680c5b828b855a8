#include "ptowsp/placement.h"

#if defined(__linux__)

#include <pthread.h>
#include <sched.h>

#include <cstddef>
#include <vector>

namespace ptowsp {

namespace {

// So often workers have to meet before the caller's thread is held.
constexpr u32 kBrought = 3;

bool is_cpu(int cpu) { return cpu >= 0 && cpu < CPU_SETSIZE; }
std::size_t at(int cpu) { return static_cast<std::size_t>(cpu); }

struct WorkerPlace {
  pthread_t thread{};
  cpu_set_t allowed{};  // where the thread may run, before anything was done here
  int cpu = -1;         // not in the run, or not known
  bool known = false;   // whose thread it is, and `allowed`

  void take(pthread_t who) {
    cpu = ::sched_getcpu();
    if (known && ::pthread_equal(thread, who) != 0) return;
    thread = who;
    known = ::pthread_getaffinity_np(who, sizeof allowed, &allowed) == 0;
  }
  bool has_room(u32 workers) const {
    return known && static_cast<u32>(CPU_COUNT(&allowed)) >= workers;
  }
};

}  // namespace

struct Placement::State {
  std::vector<WorkerPlace> places;
  u32 met = 0;
  bool held = false;  // the caller's thread
  cpu_set_t before{};

  bool meets(u32 worker) const {
    for (u32 other = 0; other < places.size(); ++other) {
      if (other != worker && places[other].cpu == places[worker].cpu) return true;
    }
    return false;
  }
  // What the system refuses leaves the thread where it is.
  void keep_off_others(u32 worker) {
    cpu_set_t left = places[worker].allowed;
    for (u32 other = 0; other < places.size(); ++other) {
      if (other != worker && is_cpu(places[other].cpu)) CPU_CLR(at(places[other].cpu), &left);
    }
    if (CPU_COUNT(&left) == 0) return;
    if (::sched_setaffinity(0, sizeof left, &left) == 0) places[worker].cpu = ::sched_getcpu();
  }
  // By the worker that joins: a run that nobody joins costs the caller nothing.
  void hold_caller() {
    const WorkerPlace& caller = places[0];
    if (held || !is_cpu(caller.cpu)) return;
    if (::pthread_getaffinity_np(caller.thread, sizeof before, &before) != 0) return;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(at(caller.cpu), &here);
    held = ::pthread_setaffinity_np(caller.thread, sizeof here, &here) == 0;
  }
  void release_caller() {
    if (held) ::pthread_setaffinity_np(places[0].thread, sizeof before, &before);
    held = false;
  }
};

int current_cpu() { return ::sched_getcpu(); }

Placement::Placement() : state_(std::make_unique<State>()) {}
Placement::~Placement() = default;

void Placement::enter(u32 worker, u32 workers) {
  State& state = *state_;
  if (state.places.size() < workers) state.places.resize(workers);
  WorkerPlace& mine = state.places[worker];
  if (worker == 0) {  // it stays where it is
    mine.thread = ::pthread_self();
    mine.cpu = ::sched_getcpu();
    return;
  }
  mine.take(::pthread_self());
  if (!mine.has_room(workers) || !is_cpu(mine.cpu)) return;
  if (state.meets(worker)) {
    state.met += 1;
    state.keep_off_others(worker);
  }
  if (state.met >= kBrought) state.hold_caller();
}

void Placement::leave(u32 worker) {
  State& state = *state_;
  if (worker >= state.places.size()) return;
  if (worker == 0) state.release_caller();
  state.places[worker].cpu = -1;
}

bool Placement::has_room(u32 worker, u32 workers) const {
  return worker < state_->places.size() && state_->places[worker].has_room(workers);
}

}  // namespace ptowsp

#else

#include <thread>

namespace ptowsp {

struct Placement::State {};
int current_cpu() { return -1; }
Placement::Placement() = default;
Placement::~Placement() = default;
void Placement::enter(u32, u32) {}
void Placement::leave(u32) {}
bool Placement::has_room(u32, u32 workers) const {
  return workers <= std::thread::hardware_concurrency();
}

}  // namespace ptowsp

#endif
