#include "ptowsp/park.h"

#include <thread>

#include "harness.h"

using namespace ptowsp;

TEST(a_notification_after_prepare_is_not_missed) {
  ParkingLot lot;
  const u64 ticket = lot.prepare();
  lot.notify_one();
  lot.wait(ticket, std::chrono::hours(1));  // returns at once
  CHECK(true);
}

TEST(sleepers_are_woken) {
  ParkingLot lot;
  std::atomic<int> awake{0};
  std::thread sleeper([&] {
    const u64 ticket = lot.prepare();
    awake = 1;
    lot.wait(ticket, std::chrono::hours(1));
    awake = 2;
  });
  while (awake == 0) std::this_thread::yield();
  lot.notify_all();
  sleeper.join();
  CHECK_EQ(awake.load(), 2);
}

TEST(a_nap_ends_by_itself) {
  ParkingLot lot;
  lot.wait(lot.prepare(), std::chrono::milliseconds(1));
  CHECK(true);
}

PTOWSP_TEST_MAIN
