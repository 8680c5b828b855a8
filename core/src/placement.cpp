#include "ptowsp/placement.h"

#include <algorithm>
#include <atomic>
#include <cstddef>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace ptowsp {

namespace {

// How often workers have met in this process: what a system does once it does to every program.
std::atomic<u32> met{0};
constexpr u32 kMetAgain = 3;

}  // namespace

#if defined(__linux__)

namespace {

// Where the process could run when it was first asked. Threads that have moved may run on less.
const cpu_set_t& allowed() {
  static const cpu_set_t found = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) CPU_ZERO(&set);
    return set;
  }();
  return found;
}
u32 num_cpus() { return static_cast<u32>(CPU_COUNT(&allowed())); }

}  // namespace

int current_cpu() { return ::sched_getcpu(); }

void keep_off(const std::vector<int>& cpus) {
  cpu_set_t left = allowed();
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR(static_cast<std::size_t>(cpu), &left);
  }
  // What the system refuses leaves the thread where it is.
  if (CPU_COUNT(&left) > 0) ::sched_setaffinity(0, sizeof left, &left);
}

// The caller's thread, which is held by another one: so a run that nobody joins costs nothing.
struct Placement::Caller {
  pthread_t thread{};
  cpu_set_t before{};
  bool held = false;

  void is_here() { thread = ::pthread_self(); }
  void hold(int cpu) {
    if (held || cpu < 0 || cpu >= CPU_SETSIZE) return;
    if (::pthread_getaffinity_np(thread, sizeof before, &before) != 0) return;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<std::size_t>(cpu), &here);
    held = ::pthread_setaffinity_np(thread, sizeof here, &here) == 0;
  }
  void release() {
    if (held) ::pthread_setaffinity_np(thread, sizeof before, &before);
    held = false;
  }
};

#else

namespace {
u32 num_cpus() { return 0; }
}  // namespace
int current_cpu() { return -1; }
void keep_off(const std::vector<int>&) {}
struct Placement::Caller {
  void is_here() {}
  void hold(int) {}
  void release() {}
};

#endif

Placement::Placement() : caller_(std::make_unique<Caller>()) {}
Placement::~Placement() = default;

// Whether a worker is where another one is.
bool Placement::meets(u32 worker) const {
  for (u32 other = 0; other < places_.size(); ++other) {
    if (other != worker && places_[other].cpu == places_[worker].cpu) return true;
  }
  return false;
}

std::vector<int> Placement::enter(u32 worker, u32 workers) {
  if (places_.size() < workers) places_.resize(workers);
  Place& mine = places_[worker];
  mine.cpu = current_cpu();
  if (worker == 0) {
    caller_->is_here();
    return {};
  }
  const int caller = places_[0].cpu;
  if (mine.cpu < 0 || caller < 0 || num_cpus() < workers) return {};
  const bool meet = meets(worker);
  // The caller's thread is where this worker has been kept: it was brought there.
  const bool brought = !mine.off.empty() && mine.last == caller;
  if (meet || brought) met.fetch_add(1, std::memory_order_relaxed);
  const u32 times = met.load(std::memory_order_relaxed);
  if (times >= kMetAgain) caller_->hold(caller);
  mine.last = mine.cpu;
  const bool kept = std::find(mine.off.begin(), mine.off.end(), caller) != mine.off.end();
  if (times == 0 || (kept && !meet)) return {};
  mine.off.clear();
  for (u32 other = 0; other < workers; ++other) {
    if (other != worker && places_[other].cpu >= 0) mine.off.push_back(places_[other].cpu);
  }
  mine.cpu = -1;  // it is about to leave
  return mine.off;
}

void Placement::leave(u32 worker) {
  if (worker >= places_.size()) return;
  Place& mine = places_[worker];
  if (worker == 0) {
    caller_->release();
  } else {
    mine.last = current_cpu();
  }
  mine.cpu = -1;
}

}  // namespace ptowsp
