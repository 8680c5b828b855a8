"""How sequences are cut into chunks, by expressions that control evaluates."""

# What lengths and numbers are here are symbols.
# pyright: basic
from dataclasses import dataclass

from pto_wsp import maximum, minimum, reduce_max, reduce_sum, search, select
from pto_wsp.workloads.refusals import check_counts


@dataclass(frozen=True, slots=True)
class Tier:
    """How sequences of up to `limit` tokens are attended to: `block` keys at a time, cut into
    chunks of at least `chunk` tokens, or never where that is 0. The last tier also takes what is
    longer."""

    limit: int
    block: int
    chunk: int

    def __post_init__(self) -> None:
        check_counts("Tier", block=self.block)


# Short sequences are one task for each KV head: a second one would cost a merge and save nothing.
# Longer ones read more keys at a time, which spreads the cost of a block, and are cut into chunks
# of more, which bounds what the merge reads.
DECODE_TIERS = (
    Tier(2 << 10, 64, 0),
    Tier(8 << 10, 128, 1 << 10),
    Tier(64 << 10, 128, 2 << 10),
    Tier(128 << 10, 256, 4 << 10),
)


@dataclass(frozen=True, slots=True)
class Cutting:
    """How sequences are cut: chunks begin at multiples of `unit` tokens."""

    tiers: tuple[Tier, ...]
    unit: int
    exact: bool
    uneven: int
    shares: int

    def units(self, sequences, lens, blocks):
        find = self.search if self.exact else self.mean
        return find(sequences, lens, blocks)

    def chunks(self, length, units):
        """How many chunks a sequence has, whether that is one, and where each begins."""
        if self.shares > 1:
            return self.shared(length, units)
        size = self.size(length, units) if self.exact else self.even(length, units)
        return -(-length // size), length <= size, lambda chunk: chunk * size

    def most(self, blocks):
        """More chunks than that no sequence has."""
        blocks = maximum(blocks, 1)
        return (blocks if self.exact else blocks * self.uneven + 1) + self.shares - 1

    @property
    def tiers_cut(self) -> tuple[Tier, ...]:
        """The tiers whose sequences may be cut."""
        return self.tiers if self.shares > 1 else tuple(t for t in self.tiers if t.chunk)

    @property
    def cuts_all(self) -> bool:
        """Whether sequences of every length may be cut."""
        return all(tier.chunk for tier in self.tiers)

    def by_tier(self, length, of):
        """What `of` says of the tier of a sequence; only what is chosen costs time."""
        found = of(self.tiers[-1])
        for tier in reversed(self.tiers[:-1]):
            found = select(length <= tier.limit, of(tier), found)
        return found

    def size(self, length, units):
        """The chunk size of a sequence; its length if it is never cut."""
        return self.by_tier(
            length,
            lambda tier: maximum(units * self.unit, tier.chunk) if tier.chunk else length,
        )

    def count(self, length, units):
        def of(tier: Tier):
            if tier.chunk == 0:
                return minimum(length, 1)
            return ceil_div(length, maximum(units * self.unit, tier.chunk))

        return self.by_tier(length, of)

    def shared(self, length, units):
        """So many more chunks that they can be shared out, as long as they have a unit each; of one
        size, give or take a unit. Quotients are written such that what they divide by, which may
        hold a search, stands in them once."""
        size = maximum(self.size(length, units), 1)
        wanted = maximum(-(-length // (size * self.shares)), 1) * self.shares
        whole = ceil_div(length, self.unit)
        chunks = maximum(minimum(wanted, whole), 1)
        return chunks, chunks == 1, lambda chunk: chunk * whole // chunks * self.unit

    def mean(self, sequences, lens, blocks):
        """The chunk, in units, of which all sequences together have `blocks`, or `uneven` times as
        many if the longest is more than an eighth longer than the mean."""
        total = reduce_sum(sequences, lambda b: lens[b])
        if self.uneven > 1:
            longest = reduce_max(sequences, lambda b: lens[b])
            differ = longest * sequences > total + total // 8
            blocks = select(differ, blocks * self.uneven, blocks)
        return maximum(ceil_div(total, maximum(blocks, 1) * self.unit), 1)

    def even(self, length, units):
        """Near that chunk size, such that all chunks of a sequence are of one size: what is left
        over is no chunk by itself if it is less than a quarter of one. Expressions are written out,
        so sizes stand in them as seldom as can be."""
        size = self.size(length, units)
        chunks = maximum(-((size // 4 - length) // size), 1)
        return ceil_div(-(-length // chunks), self.unit) * self.unit

    def search(self, sequences, lens, blocks):
        """The smallest chunk, in units, with which there are at most `blocks` chunks."""

        def fits(units):
            return reduce_sum(sequences, lambda b: self.count(lens[b], units)) <= blocks

        # Rounding up adds less than one chunk to each sequence, so `enough` is.
        total, more = reduce_sum(sequences, lambda b: lens[b]), blocks - sequences
        enough = select(more > 0, ceil_div(total, maximum(more, 1)), total)
        last = maximum(ceil_div(enough, self.unit), 2)
        if not self.cuts_all:
            return search(1, last, fits)
        # Where every sequence is cut, chunks of less than the mean are too many.
        first = maximum(ceil_div(ceil_div(total, maximum(blocks, 1)), self.unit), 2)
        return select(fits(1), 1, search(minimum(first, last), last, fits))


def chunk_unit(page: int) -> int:
    """Chunks are multiples of so many tokens: whole pages, and not too few tokens."""
    return page * max(1, 64 // page)


def ceil_div(size, by):
    return (size + by - 1) // by
