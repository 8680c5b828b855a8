// CODE: one walk over all instructions, with a bounded stack of open blocks.
#include <string>

#include "ptowsp/hash.h"
#include "validate_context.h"
#include "validate_ops.h"

namespace ptowsp::check {
namespace {

u64 hash_step(u64 hash, u32 step) {
  const char bytes[4] = {static_cast<char>(step), static_cast<char>(step >> 8),
                         static_cast<char>(step >> 16), static_cast<char>(step >> 24)};
  return fnv1a({bytes, sizeof(bytes)}, hash);
}

// The loops around a place, RECV included.
struct Nest {
  u32 count = 0;
  u32 loop = kNone;  // the innermost, as an index of Context::loops
  u32 axis = kNone;  // the innermost that has an axis
};

// Where an entry begins: in main and processes outside all blocks, in a procedure where it is
// called.
struct Base {
  Nest nest = {};
  u32 blocks = 0;
  bool is_called = false;
};

// One open block.
struct Block {
  Op op = Op::HALT;
  u32 end = 0;        // pc just past its END
  u32 announced = 0;  // children it says it has; kNone if it does not say
  u32 children = 0;   // children so far
  u64 path = 0;       // path hash down to this block
  u64 outer_lets = 0;
  Nest outer = {};
  std::size_t allocs = 0;     // allocs made before it
  bool last_is_cond = false;  // the child before was a COND
};

bool has_callee(const Site& s, TaskKind kind) {
  const bool has_kernel = s.kernel != kNone;
  if (kind == TaskKind::KERNEL) return has_kernel != (s.tiers != kNone);
  return s.tiers == kNone && has_kernel == (kind == TaskKind::COLLECTIVE);
}

class CodeChecker {
 public:
  explicit CodeChecker(Context& c)
      : c_(c),
        n_(c.count(Section::CODE)),
        site_at_(n_, kNone),
        bases_(c.count(Section::ENTRY)),
        axis_used_(c.count(Section::AXIS), false),
        live_(c.count(Section::ALLOC), kNone),
        produced_by_(c.count(Section::CHANNEL), kNone),
        consumed_by_(c.count(Section::CHANNEL), kNone),
        of_channel_(c.count(Section::ALLOC), false) {
    for (u32 i = 0; i < c.count(Section::CHANNEL); ++i) of_channel_[buffer_of(i)] = true;
  }

  void check() {
    if (c_.count(Section::ENTRY) == 0)
      Context::fail(c_.at(Section::ENTRY, 0), "the plan has no entry");
    find_sites();
    for (u32 i = 0; i < c_.count(Section::ENTRY); ++i) check_entry(i);
    if (pc_ != n_) Context::fail(at(pc_), "the instruction belongs to no entry");
    check_all_used();
  }

 private:
  u64 at(u32 pc) const { return c_.at(Section::CODE, pc); }
  [[noreturn]] void fail(const std::string& what) const { Context::fail(at(pc_), what); }
  Block& block() { return blocks_[depth_]; }
  Scope scope() const { return {.loops = nest_.count, .lets = lets_, .slots = true}; }

  void find_sites() {
    for (u32 i = 0; i < c_.count(Section::SITE); ++i) {
      const u32 pc = c_.get<Section::SITE>(i).pc;
      const u64 offset = c_.at(Section::SITE, i, offsetof(Site, pc));
      if (pc >= n_) Context::fail(offset, "Site.pc lies outside CODE");
      if (site_at_[pc] != kNone) Context::fail(offset, "two sites have the same pc");
      site_at_[pc] = i;
    }
  }

  void check_entry(u32 index) {
    const Entry e = c_.get<Section::ENTRY>(index);
    const u64 offset = c_.at(Section::ENTRY, index);
    entry_ = index;
    if (e.pc != pc_) {
      Context::fail(offset, "entries must follow each other without gaps; this one begins at " +
                                std::to_string(pc_));
    }
    const Base& base = bases_[index];
    if (index != 0 && e.process == kNone && !base.is_called) {
      Context::fail(offset, "nothing calls this entry, and it belongs to no process");
    }
    if (base.is_called && e.process != kNone) {
      Context::fail(offset, "a process's entry cannot be called");
    }
    mark_channels(e.process);
    depth_ = 0;
    nest_ = base.nest;
    lets_ = 0;
    blocks_[0] = Block{.announced = kNone, .path = hash_step(fnv1a(""), index)};
    while (step()) {
    }
    close_allocs(0);
  }

  void mark_channels(u32 process) {
    is_process_ = process != kNone;
    if (!is_process_) return;
    const Process p = c_.get<Section::PROCESS>(process);
    for (u32 i = p.consumes; i < p.consumes + p.num_consumes; ++i) {
      consumed_by_[c_.get<Section::CHANNEL_LIST>(i).channel] = entry_;
    }
    for (u32 i = p.produces; i < p.produces + p.num_produces; ++i) {
      produced_by_[c_.get<Section::CHANNEL_LIST>(i).channel] = entry_;
    }
  }

  // Checks the instruction at pc_ and moves past it and its words; false at the entry's HALT.
  bool step() {
    if (pc_ >= n_) Context::fail(at(n_), "the entry does not end with HALT");
    instr_ = c_.view.code(pc_);
    const OpInfo* info = find_op(instr_.opcode);
    if (info == nullptr) fail("unknown opcode " + std::to_string(instr_.opcode));
    name_ = info->name;
    check_operand(info->operand1, instr_.operand1, "operand1");
    check_operand(info->operand2, instr_.operand2, "operand2");
    switch (info->place) {
      case Place::Close:
        return close();
      case Place::Open:
        enter_child();
        open();
        return true;
      case Place::Item:
        enter_child();
        item();
        return true;
      case Place::Word:
        fail(name_ + " stands only behind the instruction that owns it");
      case Place::Axis:
      case Place::Directive:
      case Place::Device:
        break;
    }
    fail(name_ + " does not stand in CODE");
  }

  void check_operand(Operand operand, u32 value, const char* which) const {
    if (value < operand_limit(c_, operand)) return;
    fail(name_ + ": " + which + " is " + std::to_string(value) +
         (operand == Operand::None ? " and must be 0" : ", which does not exist"));
  }

  void enter_child() {
    const Op op = static_cast<Op>(instr_.opcode);
    if (op == Op::ELSE && !block().last_is_cond)
      fail("ELSE must directly follow the END of a COND");
    block().last_is_cond = op == Op::COND;
    child_path_ = hash_step(block().path, block().children);
    ++block().children;
  }

  // --- blocks ---

  bool close() {
    if (is(instr_.opcode, Op::HALT)) {
      if (depth_ != 0) fail("HALT inside a block");
      ++pc_;
      return false;
    }
    if (depth_ == 0) fail("END without an open block");
    const Block& b = block();
    if (b.end != pc_ + 1) {
      fail("the block's operand2 says that it ends at " + std::to_string(b.end) +
           ", but it ends at " + std::to_string(pc_ + 1));
    }
    if (b.announced != kNone && b.announced != b.children) {
      fail("the block announced " + std::to_string(b.announced) + " children and has " +
           std::to_string(b.children));
    }
    lets_ = b.outer_lets;
    nest_ = b.outer;
    close_allocs(b.allocs);
    --depth_;
    ++pc_;
    return true;
  }

  void open() {
    const Op op = static_cast<Op>(instr_.opcode);
    if (bases_[entry_].blocks + depth_ + 1 > kMaxBlocks)
      fail("more than " + std::to_string(kMaxBlocks) + " blocks are open");
    const bool counts = op == Op::COMBINE || op == Op::SEQUENTIAL;
    const Block opened{.op = op,
                       .end = instr_.operand2,
                       .announced = counts ? u32{instr_.operand1} : kNone,
                       .path = child_path_,
                       .outer_lets = lets_,
                       .outer = nest_,
                       .allocs = allocs_.size()};
    const bool has_axis = find_op(instr_.opcode)->operand1 == Operand::Axis;
    if (has_axis || op == Op::RECV) open_loop(op);
    blocks_[++depth_] = opened;
    if (op == Op::RECV) hold(buffer_of(instr_.operand1));  // until the block ends
    ++pc_;
    if (op == Op::COND || op == Op::LOOP_WHILE) condition();
  }

  void open_loop(Op op) {
    if (nest_.count >= kMaxLoops)
      fail("more than " + std::to_string(kMaxLoops) + " loops are nested");
    if (op == Op::RECV) {
      check_channel(consumed_by_, "consume");
    } else {
      take_axis(op);
    }
    c_.loops.push_back({nest_.loop, nest_.count});
    nest_.loop = static_cast<u32>(c_.loops.size()) - 1;
    ++nest_.count;
  }

  void take_axis(Op op) {
    const u32 axis = instr_.operand1;
    if (axis_used_[axis]) fail("another loop uses the same axis record");
    axis_used_[axis] = true;
    check_axis(c_, axis, op, scope(), nest_.axis, at(pc_));
    nest_.axis = axis;
  }

  // The EXT word behind COND and LOOP_WHILE.
  void condition() {
    if (pc_ >= n_ || !is(c_.view.code(pc_).opcode, Op::EXT)) {
      Context::fail(at(pc_ - 1), name_ + " must be followed by an EXT word");
    }
    instr_ = c_.view.code(pc_);
    name_ = "EXT";
    check_operand(Operand::None, instr_.operand1, "operand1");
    check_operand(Operand::Expr, instr_.operand2, "operand2");
    c_.use(instr_.operand2, ScalarType::BOOL, scope(), at(pc_), "the condition");
    ++pc_;
  }

  // --- items ---

  void item() {
    switch (static_cast<Op>(instr_.opcode)) {
      case Op::TASK:
        return task(TaskKind::KERNEL);
      case Op::COLLECTIVE:
        return task(TaskKind::COLLECTIVE);
      case Op::BREAK:
        check_break();
        break;
      case Op::CALL:
        call();
        break;
      case Op::LET:
        let();
        break;
      case Op::SLOT_SET:
        slot_set();
        break;
      case Op::SLOT_LOAD:
        slot_load();
        break;
      case Op::ROOM:
        check_channel(produced_by_, "produce");
        hold(buffer_of(instr_.operand1));
        break;
      case Op::SEND:
        check_channel(produced_by_, "produce");
        check_send();
        let_go(buffer_of(instr_.operand1), "ROOM");
        break;
      case Op::CLOSE:
        check_channel(produced_by_, "produce");
        break;
      case Op::TAKE:
        check_channel(consumed_by_, "consume");
        hold(buffer_of(instr_.operand1));
        break;
      case Op::DROP:
        check_channel(consumed_by_, "consume");
        let_go(buffer_of(instr_.operand1), "TAKE");
        break;
      case Op::ALLOC:
        alloc();
        break;
      case Op::FREE:
        free();
        break;
      default:  // NOP, BARRIER
        break;
    }
    ++pc_;
  }

  // The site whose instruction stands here.
  void enter_site(u32 index, TaskKind kind) {
    if (site_at_[pc_] != index) fail(name_ + " and the pc of its site do not name each other");
    const Site s = c_.get<Section::SITE>(index);
    const auto offset = [&](std::size_t field) { return c_.at(Section::SITE, index, field); };
    if (!is(s.kind, kind))
      Context::fail(offset(offsetof(Site, kind)), "Site.kind does not fit " + name_);
    if (s.level != nest_.count) {
      Context::fail(offset(offsetof(Site, level)), "Site.level is " + std::to_string(s.level) +
                                                       ", but " + std::to_string(nest_.count) +
                                                       " loops enclose it");
    }
    if (s.axis != nest_.axis) {
      Context::fail(offset(offsetof(Site, axis)), "Site.axis is not the innermost axis around it");
    }
    if (s.path_hash != child_path_) {
      Context::fail(offset(offsetof(Site, path_hash)), "Site.path_hash is not that of its place");
    }
    if (!has_callee(s, kind)) {
      Context::fail(offset(offsetof(Site, kernel)),
                    "KERNEL sites have a kernel or a tier set, COLLECTIVE a kernel, LOAD neither");
    }
    c_.entry_of_site[index] = entry_;
    c_.loop_of_site[index] = nest_.loop;
  }

  void task(TaskKind kind) {
    const u32 site = instr_.operand2;
    const u32 words = instr_.operand1;
    enter_site(site, kind);
    if (words > kMaxArgWords) fail("a " + name_ + " has too many argument words");
    if (words >= n_ - pc_) fail("the argument words of a " + name_ + " reach past the end of CODE");
    const u32 tiers = c_.get<Section::SITE>(site).tiers;
    if (tiers != kNone) check_tier_use(c_.tier_sets[tiers]);
    for (u32 i = pc_ + 1; i <= pc_ + words; ++i) check_word_operands(i);
    check_words(c_, pc_, scope(), live_);
    pc_ += words + 1;
  }

  void check_tier_use(const Needs& needs) const {
    if (needs.loops > nest_.count || (needs.lets & ~lets_) != 0) {
      fail("the tier set of the task reads variables that are not in scope there");
    }
  }

  void check_word_operands(u32 pc) const {
    const Instr w = c_.view.code(pc);
    const OpInfo* info = find_op(w.opcode);
    if (info == nullptr || info->place != Place::Word || is(w.opcode, Op::EXT)) {
      Context::fail(at(pc),
                    "a " + name_ + " is followed by fewer argument words than it announces");
    }
    if (w.operand1 >= operand_limit(c_, info->operand1) ||
        w.operand2 >= operand_limit(c_, info->operand2)) {
      Context::fail(at(pc), std::string(info->name) + " has an operand that does not exist");
    }
  }

  void check_break() const {
    for (u32 i = depth_; i > 0; --i) {
      if (blocks_[i].op == Op::LOOP_WHILE && blocks_[i].outer.count == instr_.operand1) return;
    }
    fail("BREAK leaves a LOOP_WHILE that does not enclose it");
  }

  // Calls go to later entries only, so they cannot form a circle. One call each: two would make
  // two tasks with the same site and the same loop indices.
  void call() {
    const u32 target = instr_.operand2;
    if (target <= entry_) fail("CALL must go to an entry with a higher number");
    Base& base = bases_[target];
    const u32 blocks = bases_[entry_].blocks + depth_ + 1;
    if (blocks > kMaxBlocks) fail("more than " + std::to_string(kMaxBlocks) + " blocks are open");
    if (base.is_called) fail("another CALL goes to the same entry");
    base = {nest_, blocks, true};
  }

  void let() {
    const ExprInfo& info = c_.exprs[instr_.operand2];
    require(info, scope(), at(pc_), "LET");
    bool varying = info.loops != 0;
    for (u32 i = 0; i < kMaxLets; ++i) {
      if ((info.lets >> i & 1u) != 0 && c_.let_needs_loops[i]) varying = true;
    }
    c_.let_needs_loops[instr_.operand1] = varying;
    lets_ |= u64{1} << instr_.operand1;
  }

  Slot slot_here() const {
    const Slot slot = c_.get<Section::SLOT>(instr_.operand1);
    if (slot.level > nest_.count) fail(name_ + " sets a slot outside its scope");
    return slot;
  }

  void slot_set() {
    c_.use(instr_.operand2, static_cast<ScalarType>(slot_here().type), scope(), at(pc_),
           "SLOT_SET");
  }

  void slot_load() {
    const Slot slot = slot_here();
    enter_site(instr_.operand2, TaskKind::LOAD);
    if (pc_ + 1 >= n_ || !is(c_.view.code(pc_ + 1).opcode, Op::IO_INPUT)) {
      fail("SLOT_LOAD must be followed by an IO_INPUT word");
    }
    ++pc_;
    check_word_operands(pc_);
    const u32 access = c_.view.code(pc_).operand2;
    const Access a = c_.get<Section::ACCESS>(access);
    if (!is(a.mode, AccessMode::IN)) fail("SLOT_LOAD needs an access that only reads");
    if (c_.accesses[access].visible != 0) fail("SLOT_LOAD needs a region of one element");
    if (!is(slot.type, scalar_type(c_.get<Section::TENSOR>(a.tensor).dtype))) {
      fail("SLOT_LOAD reads a tensor whose dtype does not fit the slot");
    }
    check_access_use(c_, access, scope(), live_, at(pc_));
  }

  void check_channel(const std::vector<u32>& owners, const char* verb) const {
    if (is_process_ && owners[instr_.operand1] != entry_) {
      fail(name_ + " uses a channel that its process does not " + verb);
    }
  }

  bool encloses_here(u32 loop) const {
    u32 here = nest_.loop;
    while (here != loop && here != kNone) here = c_.loops[here].outer;
    return here == loop;
  }

  // A message is the buffer that an earlier task of the same iteration wrote.
  void check_send() const {
    const u32 site = instr_.operand2;
    if (c_.entry_of_site[site] != entry_ || !encloses_here(c_.loop_of_site[site])) {
      fail("SEND passes on what no earlier task of its iteration wrote");
    }
    const u32 element = c_.get<Section::CHANNEL>(instr_.operand1).element;
    const u32 task = c_.get<Section::SITE>(site).pc;
    const Instr head = c_.view.code(task);
    for (u32 i = 1; !is(head.opcode, Op::SLOT_LOAD) && i <= head.operand1; ++i) {
      const Instr w = c_.view.code(task + i);
      if (!is(w.opcode, Op::IO_OUTPUT) && !is(w.opcode, Op::IO_INOUT)) continue;
      if (c_.get<Section::ACCESS>(w.operand2).tensor == element) return;
    }
    fail("SEND names a task that does not write the channel's element");
  }

  void alloc() {
    const u32 index = instr_.operand1;
    if (c_.get<Section::ALLOC>(index).level != nest_.count)
      fail("ALLOC does not stand at the level of its record");
    if (live_[index] != kNone) fail("ALLOC takes a buffer that is already there");
    if (of_channel_[index]) fail("ALLOC takes a buffer of a channel");
    if ((c_.allocs[index].lets & ~lets_) != 0) fail("ALLOC reads a let that has no value there");
    live_[index] = depth_;
    allocs_.push_back(index);
  }

  // In the block of its ALLOC only: elsewhere it could run twice, or not at all.
  void free() { let_go(instr_.operand1, "ALLOC"); }

  void let_go(u32 alloc, const char* opener) {
    if (live_[alloc] != depth_) {
      fail(name_ + " does not stand in the block of its " + opener);
    }
    live_[alloc] = kNone;
  }

  // The buffers of a channel; a process has one of them at a time.
  u32 buffer_of(u32 channel) const {
    const u32 element = c_.get<Section::CHANNEL>(channel).element;
    return c_.get<Section::STORAGE>(c_.get<Section::TENSOR>(element).storage).alloc;
  }
  void hold(u32 alloc) {
    if (live_[alloc] != kNone) fail(name_ + " takes a second buffer of the channel");
    live_[alloc] = depth_;
    allocs_.push_back(alloc);
  }

  void close_allocs(std::size_t keep) {
    while (allocs_.size() > keep) {
      live_[allocs_.back()] = kNone;
      allocs_.pop_back();
    }
  }

  void check_all_used() const {
    for (u32 i = 0; i < axis_used_.size(); ++i) {
      if (!axis_used_[i]) Context::fail(c_.at(Section::AXIS, i), "no loop uses this axis record");
    }
    for (u32 i = 0; i < c_.count(Section::SITE); ++i) {
      if (c_.entry_of_site[i] != kNone) continue;
      Context::fail(c_.at(Section::SITE, i, offsetof(Site, pc)),
                    "Site.pc names no instruction of its kind");
    }
  }

  Context& c_;
  u32 n_;
  std::vector<u32> site_at_;
  std::vector<Base> bases_;
  std::vector<bool> axis_used_;
  std::vector<u32> live_;         // block in which an alloc was made, or kNone
  std::vector<u32> allocs_;       // allocs of the open blocks, in order
  std::vector<u32> produced_by_;  // entry whose process may send to a channel
  std::vector<u32> consumed_by_;
  std::vector<bool> of_channel_;  // by alloc
  Block blocks_[kMaxBlocks + 1];  // 0: the entry itself
  u32 depth_ = 0;
  Nest nest_;
  u64 lets_ = 0;
  u32 entry_ = 0;
  bool is_process_ = false;
  u32 pc_ = 0;
  Instr instr_{};
  std::string name_;  // of the instruction, for messages
  u64 child_path_ = 0;
};

}  // namespace

void check_code(Context& c) {
  c.entry_of_site.assign(c.count(Section::SITE), kNone);
  c.loop_of_site.assign(c.count(Section::SITE), kNone);
  CodeChecker(c).check();
}

}  // namespace ptowsp::check
