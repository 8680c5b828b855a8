#include "ptowsp/order.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace ptowsp {

namespace {

bool refuse(Error* error, u32 entry, std::string message) {
  *error = Error::make(Status::ORDER_REFUSED, std::move(message));
  error->at_record(Section::SCHEDULE, entry, nullptr, 0);
  return false;
}

// A site as the plan has it, without values.
struct SiteText {
  struct Use {
    u32 tensor;
    bool write;
  };
  std::vector<Use> uses;
  bool waits = false;  // has AFTERs
};

bool uses_memory(Op op) {
  return op == Op::IO_INPUT || op == Op::IO_OUTPUT || op == Op::IO_INOUT || op == Op::IO_ACCUM;
}

std::vector<SiteText> read_sites(const PlanView& plan) {
  std::vector<SiteText> sites(plan.count(Section::SITE));
  const auto read = [&](SiteText* site, u32 first, u32 words) {
    for (u32 w = first; w < first + words; ++w) {
      const Instr word = plan.code(w);
      const auto op = static_cast<Op>(word.opcode);
      site->waits = site->waits || op == Op::AFTER;
      if (!uses_memory(op)) continue;
      const u32 tensor = plan.get<Section::ACCESS>(word.operand2).tensor;
      site->uses.push_back({tensor, op != Op::IO_INPUT});
    }
  };
  for (u32 s = 0; s < sites.size(); ++s) {
    const u32 pc = plan.get<Section::SITE>(s).pc;
    const Instr opener = plan.code(pc);
    const bool task = static_cast<Op>(opener.opcode) == Op::TASK;
    read(&sites[s], pc + 1, task ? opener.operand1 : 1);
  }
  return sites;
}

bool conflict(const SiteText& a, const SiteText& b) {
  for (const auto& x : a.uses) {
    for (const auto& y : b.uses) {
      if (x.tensor == y.tensor && (x.write || y.write)) return true;
    }
  }
  return false;
}

class OrderCheck {
 public:
  OrderCheck(const PlanView& plan, const LoopOrder& order, const std::vector<SiteText>& sites)
      : plan_(plan), order_(order), axis_(plan.get<Section::AXIS>(order.axis)), sites_(sites) {
    for (u32 s = 0; s < sites.size(); ++s) {
      if (inside(plan.get<Section::SITE>(s).axis)) inside_.push_back(s);
    }
  }

  bool run(Error* error) const {
    if (axis_.body_tasks == kNone) {
      return refuse(error, order_.entry,
                    loop() +
                        " cannot be generated in another order: how many tasks an iteration "
                        "has depends on what tasks compute, so nobody could number them");
    }
    for (u32 pc = 0; pc < plan_.count(Section::CODE); ++pc) {
      const Instr instr = plan_.code(pc);
      const auto op = static_cast<Op>(instr.opcode);
      const bool ordered = op == Op::FOR_EACH || op == Op::LOOP_WHILE;
      if (ordered && instr.operand1 == order_.axis) {
        return refuse(error, order_.entry,
                      loop() +
                          " cannot be generated in another order: the program itself puts its "
                          "iterations in order (P.seq or P.loop_while)");
      }
    }
    return check_slots(error) && check_waits(error) && check_pairs(error);
  }

 private:
  std::string loop() const { return "axis '" + std::string(plan_.string(axis_.name)) + "'"; }
  bool inside(u32 axis) const {
    while (axis != kNone && axis != order_.axis) axis = plan_.get<Section::AXIS>(axis).outer;
    return axis == order_.axis;
  }

  // A call as messages name it: kernel and the user's line.
  std::string name(u32 s) const {
    const Site site = plan_.get<Section::SITE>(s);
    std::string text = "a read by control";
    if (site.kernel != kNone) {
      text = std::string(plan_.string(plan_.get<Section::KERNEL>(site.kernel).name));
    }
    return text + line_of(plan_, Section::SITE, s);
  }

  // Slots that iterations hand on to each other.
  bool check_slots(Error* error) const {
    std::vector<u32> open;  // axes; kNone for other blocks
    for (u32 pc = 0; pc < plan_.count(Section::CODE); ++pc) {
      const Instr instr = plan_.code(pc);
      switch (static_cast<Op>(instr.opcode)) {
        case Op::PARALLEL_FOR:
        case Op::FOR_EACH:
        case Op::SELECT:
        case Op::LOOP_WHILE:
          open.push_back(instr.operand1);
          break;
        case Op::COMBINE:
        case Op::SEQUENTIAL:
        case Op::COND:
        case Op::ELSE:
          open.push_back(kNone);
          break;
        case Op::END:
          open.pop_back();
          break;
        case Op::TASK:
          pc += instr.operand1;
          break;
        case Op::SLOT_SET:
        case Op::SLOT_LOAD: {
          const bool here = std::find(open.begin(), open.end(), order_.axis) != open.end();
          const u32 level = plan_.get<Section::SLOT>(instr.operand1).level;
          if (!here || level > axis_.level) break;
          return refuse(
              error, order_.entry,
              loop() + " cannot be generated in another order: its iterations hand slot '" +
                  std::string(plan_.string(plan_.get<Section::SLOT>(instr.operand1).name)) +
                  "' on to each other");
        }
        default:
          break;
      }
    }
    return true;
  }

  bool check_waits(Error* error) const {
    for (const u32 s : inside_) {
      if (!sites_[s].waits) continue;
      return refuse(error, order_.entry,
                    loop() + " cannot be generated in another order: " + name(s) +
                        " waits for other calls by after=");
    }
    return true;
  }

  // Every two calls that touch the same memory are proved not to meet across iterations.
  bool check_pairs(Error* error) const {
    for (const u32 a : inside_) {
      for (const u32 b : inside_) {
        if (b < a || !conflict(sites_[a], sites_[b])) continue;
        std::string why = "nothing is proved of them";
        if (proved(a, b, &why)) continue;
        return refuse(error, order_.entry,
                      loop() + " cannot be generated in another order: tasks of " + name(a) +
                          " and of " + name(b) + " in different iterations may conflict (" + why +
                          ")");
      }
    }
    return true;
  }

  bool proved(u32 a, u32 b, std::string* why) const {
    bool any = false;
    for (u32 i = 0; i < plan_.count(Section::DEPS); ++i) {
      const Deps d = plan_.get<Section::DEPS>(i);
      if (!((d.source == a && d.sink == b) || (d.source == b && d.sink == a))) continue;
      any = true;
      if (static_cast<ProofKind>(d.proof) == ProofKind::INDEPENDENT || stays(d, why)) continue;
      return false;
    }
    return any;
  }

  // Whether conflicts of a proof stay inside one iteration, or come from loops further out.
  bool stays(const Deps& d, std::string* why) const {
    *why = static_cast<ProofKind>(d.proof) == ProofKind::EVERY ? "all iterations do"
                                                               : "at which distance is not known";
    if (d.reason != kNone) *why = plan_.string(d.reason, Section::DEPS_STRING);
    if (d.num_distance <= axis_.level) return false;
    for (u32 l = 0; l < axis_.level; ++l) {
      const DepsDistance part = plan_.get<Section::DEPS_DISTANCE>(d.distance + l);
      if (part.open == 0 && part.expr == kNone && part.value != 0) return true;
    }
    const DepsDistance part = plan_.get<Section::DEPS_DISTANCE>(d.distance + axis_.level);
    if (part.open == 0 && part.expr == kNone && part.value == 0) return true;
    if (part.open == 0 && part.expr == kNone) {
      *why = "at distance " + std::to_string(part.value);
    }
    return false;
  }

  const PlanView& plan_;
  const LoopOrder& order_;
  const Axis axis_;
  const std::vector<SiteText>& sites_;
  std::vector<u32> inside_;
};

}  // namespace

bool check_order(const PlanView& plan, const ScheduleConfig& config, Error* error) {
  if (config.orders.empty()) return true;
  const std::vector<SiteText> sites = read_sites(plan);
  return std::all_of(config.orders.begin(), config.orders.end(), [&](const LoopOrder& order) {
    return order.policy == OrderPolicy::SEQUENTIAL || OrderCheck(plan, order, sites).run(error);
  });
}

bool check_bound_order(const BoundPlan& plan, const ScheduleConfig& config, u32 workers,
                       Error* error) {
  for (const LoopOrder& order : config.orders) {
    const u32 lanes = order.lanes(workers);
    if (order.policy == OrderPolicy::SEQUENTIAL || lanes == 1) continue;
    std::vector<u32> only(plan.num_storages(), kNone);  // the tensor of each storage
    std::vector<u8> written(plan.num_storages(), 0);
    const auto each = [&](auto fn) {
      for (const BoundSite& site : plan.sites()) {
        for (u32 p = 0; p < site.num_accesses; ++p) {
          const BoundAccess& a = plan.access(plan.site_access(site, p));
          fn(a.tensor, plan.tensors()[a.tensor], writes(a.mode));
        }
      }
    };
    each([&](u32, const BoundTensor& t, bool write) {
      if (write) written[t.storage] = 1;
    });
    bool apart = true;
    each([&](u32 tensor, const BoundTensor& t, bool) {
      if (written[t.storage] == 0) return;
      if (only[t.storage] == kNone) only[t.storage] = tensor;
      apart = apart && only[t.storage] == tensor && !t.by_bytes;
    });
    if (!apart) {
      return refuse(error, order.entry,
                    "a loop was to be generated in another order, but tensors of this run share "
                    "memory that tasks write: nothing is proved of them");
    }
    for (u32 i = 0; i < plan.plan().count(Section::ALLOC); ++i) {
      const u32 level = plan.plan().get<Section::ALLOC>(i).level;
      if (level <= plan.plan().get<Section::AXIS>(order.axis).level) continue;
      if (plan.alloc(i).copies >= static_cast<i64>(lanes)) continue;
      return refuse(error, order.entry,
                    std::to_string(lanes) +
                        " iterations of a loop were to be generated at a time, "
                        "but there is room for " +
                        std::to_string(plan.alloc(i).copies) + " copies of their temporaries");
    }
  }
  return true;
}

}  // namespace ptowsp
