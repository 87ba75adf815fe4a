"""Measures the same work in torch, bitsandbytes, torchao and OpenBLAS, on the CPU.

    python bench/peers.py --threads 1 > peers.json

prints rows as `lowbit bench --json` has them, with the library as the implementation.
Libraries that are missing, or that refuse to do the work, are named on stderr and left
out. `go run ./internal/benchdoc` puts both side by side.
"""

import argparse
import ctypes
import json
import os
import re
import sys
import time

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--threads", type=int, default=1, help="threads (default: 1)")
arguments.add_argument("--elements", type=int, default=1 << 24, help="elements of vectors (default: 16777216)")
arguments.add_argument("--filter", default="", help="regular expression for OPERATION/VARIANT/LIBRARY")
arguments = arguments.parse_args()

# Read by the libraries when they are loaded.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(arguments.threads)

TIME, TRIES = 0.4, 5  # seconds, and the least number of tries
SHAPES = [[128, 128], [256, 256], [512, 512], [1024, 1024], [1024, 4096]]
STACKS = SHAPES + [[64, 128, 128]]
JORDAN = (3.4445, -4.7750, 2.0315)

rows, versions = [], {}


def library(name):
    try:
        module = __import__(name)
    except Exception as e:  # a broken installation is as good as none
        say(f"{name} is left out: {type(e).__name__}: {e}")
        return None
    versions[name] = module.__version__
    return module


def say(text):
    print(text.splitlines()[0], file=sys.stderr, flush=True)


def measure(operation, variant, implementation, shape, prepare, method=""):
    """Adds the row of the best of many calls of what prepare returns."""
    name = f"{operation}/{variant}/{implementation}"
    if not re.search(arguments.filter, name):
        return
    try:
        call = prepare()
        call()
        best, start, tries = float("inf"), time.perf_counter(), 0
        while tries < TRIES or time.perf_counter() - start < TIME:
            began = time.perf_counter()
            call()
            best, tries = min(best, time.perf_counter() - began), tries + 1
    except Exception as e:
        say(f"{name} {shape} is left out: {type(e).__name__}: {e}")
        return
    elements = 1
    for size in shape:
        elements *= size
    rows.append(dict(operation=operation, variant=variant, implementation=implementation, method=method, elements=elements,
                     shape=shape, threads=arguments.threads, seconds=best, elements_per_s=elements / best))
    say(f"{name} {shape}: {best * 1e3:.4g} ms")


def main():
    torch = library("torch")
    if torch:
        torch.manual_seed(1)
        torch.set_num_threads(arguments.threads)
        conversions(torch)
        adamw(torch, "adamw_float32", "float32", "torch", lambda p: torch.optim.AdamW(p, fused=True, weight_decay=0.1))
        adamw(torch, "adamw_8bit", "float32", "torch, float32 moments", lambda p: torch.optim.AdamW(p, fused=True, weight_decay=0.1))
        adamw(torch, "adamw_bfloat16", "bfloat16", "torch", lambda p: torch.optim.AdamW(p, fused=True, weight_decay=0.1))
        products(torch)
        bitsandbytes(torch)
        torchao(torch)
    openblas()
    json.dump(dict(machine=dict(threads=arguments.threads, versions=versions), rows=rows), sys.stdout, indent=1)
    print()


def conversions(torch):
    n = arguments.elements

    def copy(to, source):
        def prepare():
            src, dst = torch.randn(n).to(source), torch.empty(n, dtype=to)
            return lambda: dst.copy_(src)
        return prepare

    measure("bf16_round", "", "torch", [n], copy(torch.bfloat16, torch.float32))
    measure("bf16_widen", "", "torch", [n], copy(torch.float32, torch.bfloat16))


def adamw(torch, operation, variant, implementation, optimizer):
    """variant is a format of weights and gradients; torchao's 4-bit moments are the table's vector_ ones."""
    n = arguments.elements

    def prepare():
        dtype = getattr(torch, variant.removeprefix("vector_"))
        p = torch.nn.Parameter(torch.randn(n).to(dtype))
        p.grad = torch.randn(n).to(dtype)
        step = optimizer([p]).step
        step()
        return step

    measure(operation, variant, implementation, [n], prepare)


def products(torch):
    for name in ["float32", "bfloat16"]:
        dtype = getattr(torch, name)

        def product(rows, columns):
            a, b = torch.randn(rows, rows).to(dtype), torch.randn(rows, columns).to(dtype)
            c = torch.empty(rows, columns, dtype=dtype)
            return lambda: torch.mm(a, b, out=c)

        def newton_schulz(shape):
            g = torch.randn(*shape)

            def call():  # as Muon's authors wrote it
                x = g.to(dtype)
                x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
                a, b, c = JORDAN
                for _ in range(5):
                    y = x @ x.mT
                    x = a * x + (b * y + c * y @ y) @ x
                return x

            return call

        for shape in SHAPES:
            measure("gemm_" + name, "", "torch", shape, lambda: product(*shape))
        for shape in STACKS:
            measure("newton_schulz_" + name, "", "torch", shape, lambda: newton_schulz(shape), "standard")


def bitsandbytes(torch):
    bnb = library("bitsandbytes")
    if not bnb:
        return
    f, n = bnb.functional, arguments.elements
    x = torch.randn(n)

    def dequantize8():
        codes, state = f.quantize_blockwise(x, blocksize=256)
        return lambda: f.dequantize_blockwise(codes, state)

    def dequantize4():
        codes, state = f.quantize_4bit(x, blocksize=64, quant_type="nf4")
        return lambda: f.dequantize_4bit(codes, state)

    measure("quantize", "dynamic8", "bitsandbytes", [n], lambda: lambda: f.quantize_blockwise(x, blocksize=256))
    measure("dequantize", "8bit", "bitsandbytes", [n], dequantize8)
    measure("quantize", "4bit", "bitsandbytes", [n], lambda: lambda: f.quantize_4bit(x, blocksize=64, quant_type="nf4"))
    measure("dequantize", "4bit", "bitsandbytes", [n], dequantize4)
    for variant in ["float32", "bfloat16"]:
        adamw(torch, "adamw_8bit", variant, "bitsandbytes", lambda p: bnb.optim.AdamW8bit(p, weight_decay=0.1))


def torchao(torch):
    ao = library("torchao")
    if not ao:
        return
    from torchao.optim import AdamW4bit, AdamW8bit

    for variant in ["float32", "bfloat16"]:
        adamw(torch, "adamw_8bit", variant, "torchao", lambda p: AdamW8bit(p, weight_decay=0.1))
        adamw(torch, "adamw_4bit", "vector_" + variant, "torchao", lambda p: AdamW4bit(p, weight_decay=0.1))


def openblas():
    """cblas_sgemm, and the plain iteration on it.

    OPENBLAS_CORETYPE (SkylakeX, Haswell) chooses the kernels: those of a processor that the library does not know are slow.
    """
    for name in ["libopenblas.so.0", "libopenblas.so", "libopenblas.dylib"]:
        try:
            blas = ctypes.CDLL(name)
            break
        except OSError:
            pass
    else:
        say("OpenBLAS is left out: the system has none")
        return
    blas.openblas_get_corename.restype = ctypes.c_char_p
    implementation = "openblas " + blas.openblas_get_corename().decode()
    try:
        import numpy as np
    except ImportError:
        say("OpenBLAS is left out: numpy is missing")
        return
    integers, real, pointer = [ctypes.c_int] * 6, ctypes.c_float, ctypes.c_void_p
    blas.cblas_sgemm.argtypes = [*integers, real, pointer, ctypes.c_int, pointer, ctypes.c_int, real, pointer, ctypes.c_int]

    def multiply(c, a, b, transposed, alpha, beta):
        m, k = a.shape
        n = c.shape[1]
        blas.cblas_sgemm(101, 111, 112 if transposed else 111, m, n, k, alpha, a.ctypes.data, k, b.ctypes.data, b.shape[1],
                         beta, c.ctypes.data, n)

    random = np.random.default_rng(1)

    def normal(*shape):
        return random.standard_normal(shape, dtype=np.float32)

    def product(rows, columns):
        a, b, c = normal(rows, rows), normal(rows, columns), normal(rows, columns)
        return lambda: multiply(c, a, b, False, 1, 0)

    def newton_schulz(*shape):
        rows, columns = shape[-2:]
        g = normal(*shape).reshape(-1, rows, columns)
        x, y = np.empty((rows, columns), np.float32), np.empty((rows, columns), np.float32)
        a, b = np.empty((rows, rows), np.float32), np.empty((rows, rows), np.float32)

        def call():
            for source in g:
                np.divide(source, np.float32(np.linalg.norm(source)), out=y)
                for _ in range(5):
                    x[:] = y
                    multiply(a, x, x, True, 1, 0)
                    b[:] = a
                    multiply(b, a, a, False, JORDAN[2], JORDAN[1])
                    multiply(y, b, x, False, 1, JORDAN[0])

        return call

    for shape in SHAPES:
        measure("gemm_float32", "", implementation, shape, lambda: product(*shape))
    for shape in STACKS:
        measure("newton_schulz_float32", "", implementation, shape, lambda: newton_schulz(*shape), "standard")


main()
