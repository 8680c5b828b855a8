"""What a new process pays before it can run: python -m benchmarks.host.fresh prints it as JSON."""

import json
import time

begin = time.perf_counter()
import pto_wsp  # noqa: E402

# Naming it loads the compiler and the native core, which `import pto_wsp` leaves for later.
pto_wsp.Program  # noqa: B018
imported = time.perf_counter()

from benchmarks.host.workload import LLAMA_7B, make_attention  # noqa: E402

defined = time.perf_counter()
program = make_attention(LLAMA_7B).compile(num_threads=1)
compiled = time.perf_counter()
program.close()
print(
    json.dumps(
        {
            "import_ms": (imported - begin) * 1e3,
            "define_ms": (defined - imported) * 1e3,
            "compile_ms": (compiled - defined) * 1e3,
        }
    )
)
