"""llama-server's own argument parser, out of the library of the wheel `xllamacpp`: python llamacpp_parser.py ARG ...

Prints the settings that it read, as JSON; ends with 1 where it refuses the arguments. With --serve before them it
serves. The wheel has no llama-server program, but its library exports the parser, and a `CommonParams` object holds the
very structure that it fills, right behind the head of the Python object.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from pathlib import Path

SERVER = 12
"""LLAMA_EXAMPLE_SERVER of llama.cpp's common/common.h: the parser knows each program's own flags."""
READ = ("n_ctx", "n_parallel", "n_batch", "n_ubatch", "port", "hostnames", "kv_unified", "endpoint_metrics")


def parsed(argv: list[str]) -> object | None:
    """Settings that llama-server makes of its arguments; None if it refuses them."""
    import xllamacpp

    (path,) = Path(xllamacpp.__file__).parent.glob("xllamacpp*.so")
    parse = ctypes.CDLL(str(path))._Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E
    parse.restype = ctypes.c_bool
    parse.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    params = xllamacpp.CommonParams()
    words = (ctypes.c_char_p * (len(argv) + 1))(*(word.encode() for word in argv), None)
    read = parse(len(argv), words, id(params) + object.__basicsize__, SERVER, None)
    return params if read else None


def main(argv: list[str]) -> int:
    serve = argv[:1] == ["--serve"]
    params = parsed(["llama-server", *argv[serve:]])
    if params is None:
        return 1
    found = {name: getattr(params, name) for name in READ} | {"model": params.model.path}
    found |= {name: str(getattr(params, name)) for name in ("cache_type_k", "cache_type_v", "flash_attn_type")}
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    if serve:
        import xllamacpp

        server = xllamacpp.Server(params)
        while server is not None:
            time.sleep(3600)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
