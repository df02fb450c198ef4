"""Numbers that stand for something in the records of the loop, and its few constants."""

NONE = -1

# what an engine does: `Engine.kind`
IDLE = 0  # waits for a request
DUE = 1  # stands at the boundary `end`; its next step is to be planned
DECODING = 2  # `span` decode steps until `end`
MIXED = 3  # one step with prompt tokens until `end`

# `Rules.policy`
VLLM = 0  # running first, prompts in chunks beside decodes; also one step every `period_s`
SGLANG = 1  # prompts first, in steps of their own
STATIC = 2  # a batch is filled, served to its end, replaced

# `Engine.role`
BOTH = 0
PREFILL = 1
DECODE = 2

# `World.router`
ROUND_ROBIN = 0
LEAST_LOADED = 1
PREFIX_AWARE = 2

# kinds of free blocks
ANONYMOUS = 0
OWNED = 1  # of a preempted request
NODE = 2  # of the prefix tree

# `Node.entry` where there is no entry
HELD = -1  # running requests hold the node
GONE = -2  # not in the cache

# `Engine.blocked`
FREE = 0
BY_SEATS = 1
BY_BLOCKS = 2
BY_TOKENS = 3

# why `events.run` returned
DONE = 0
MORE_REQUESTS = 1
MORE_SLOTS = 2
MORE_ENTRIES = 3
MORE_ROWS = 4
STUCK = 5

# statistics: sums of each metric are count, sum, maximum; sketches are counts by size
TTFT = 0
TPOT = 1
ITL = 2
E2E = 3
WAIT = 4
METRICS = 5
PER_OCTAVE = 512
LOWEST = -20  # smallest octave: 2^-20 s, a microsecond
OCTAVES = 44  # to 2^24 s, half a year
BUCKETS = PER_OCTAVE * OCTAVES

# columns of the time series: integrals over the cell, then counts of what happened in it
SEATED = 0
BATCH = 1
BLOCKS = 2
BUSY = 3
PROMPT_TOKENS = 4
OUTPUT_TOKENS = 5
ARRIVED = 6
ADMITTED = 7
FINISHED = 8
PREEMPTED = 9
COLUMNS = 10

HEAP_SHIFT = 1 << 24  # a key of the heap is step x this + slot
RESERVED_OUTPUT = 4096  # SGLang reserves no more of an output than this at admission [token]
RETRACT_STEPS = 20  # steps that SGLang wants to have ahead after it retracted
