"""The command pianola-export."""

import argparse
import importlib.util
import inspect
import pathlib
import re
import sys

import torch

from . import ExportError, export
from .build import MACHINES
from .split import PARTITIONS

HELP = """exports a PyTorch language model for Pianola: writes a folder with model.lua, the compiled units and the
weights. MODEL is the folder of a Hugging Face model, or its config.json for random weights, or FILE.py:FUNCTION,
where FUNCTION returns a module that takes tokens and returns logits."""


def from_file(path, function):
    if not pathlib.Path(path).is_file():
        raise ExportError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise ExportError(f"{path}: has no function {function!r}; name one that returns the model")
    model = getattr(module, function)()
    if not isinstance(model, torch.nn.Module):
        raise ExportError(f"{path}: {function} returns a {type(model).__name__}, not a torch.nn.Module")
    return model, next(iter(inspect.signature(model.forward).parameters), "tokens")


def from_folder(path):
    try:
        import transformers
    except ImportError as e:
        raise ExportError("Hugging Face's models need their library: pip install transformers") from e
    folder = path if path.is_dir() else path.parent
    config = transformers.AutoConfig.from_pretrained(str(path))
    names = getattr(config, "architectures", None) or []
    kind = getattr(transformers, names[0], None) if names else transformers.AutoModelForCausalLM
    if kind is None:
        raise ExportError(
            f"{path}: names the architecture {names[0]}, which transformers {transformers.__version__} lacks"
        )
    if any(folder.glob("*.safetensors")) and path.is_dir():
        model = kind.from_pretrained(str(folder), dtype=torch.float32)
    else:
        model = kind(config) if names else kind.from_config(config)
    return model.eval(), "input_ids"


def find_layers(model):
    """Returns the path of the longest list of modules of one class."""
    lists = {
        n: len(m)
        for n, m in model.named_modules()
        if isinstance(m, torch.nn.ModuleList) and len({type(x) for x in m}) == 1
    }
    most = max(lists.values(), default=0)
    best = [n for n, k in lists.items() if k == most]
    if len(best) != 1:
        raise ExportError(
            f"the model has {'no list' if not best else 'several lists'} of layers"
            f"{': ' + ', '.join(best) if best else ''}; name it with --layers"
        )
    return best[0]


def named_input(text):
    """Reads NAME=N of --input."""
    name, _, below = text.partition("=")
    if not name or not re.fullmatch("[1-9][0-9]*", below):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N, such as position_ids=128")
    return name, int(below)


def main(arguments=None):
    parser = argparse.ArgumentParser("pianola-export", description=HELP)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="the folder to write")
    parser.add_argument("--rows", type=int, default=2, help="sequences of a microbatch (default 2)")
    parser.add_argument("--context", type=int, default=128, help="tokens of a sequence (default 128)")
    parser.add_argument(
        "--layers",
        metavar="PATH",
        help="the list of repeated layers, such as model.layers; by default the longest one",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=named_input,
        metavar="NAME=N",
        help="an argument of the model that differs from microbatch to microbatch: integers from 0 to N - 1, one for"
        " each token, such as position_ids=128; may be given several times",
    )
    parser.add_argument(
        "--partition",
        choices=PARTITIONS,
        default="default",
        help="min-cut: keep fewer bytes from F to the backward, which computes more again; the report has the bytes",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="what will run it: a CPU (default), or a GPU like this machine's",
    )
    parser.add_argument(
        "--machine",
        choices=MACHINES,
        help="the processors that will run it (default x86-64-v3: AVX2)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of random weights, if MODEL has no weights (default 0)"
    )
    args = parser.parse_args(arguments)
    if args.machine and args.device == "cuda":
        parser.error("--machine names CPUs; with --device cuda the model is compiled for this machine's GPU")
    try:
        torch.manual_seed(args.seed)
        path, _, function = args.model.rpartition(":")
        if path.endswith(".py"):
            model, name = from_file(path, function)
        elif pathlib.Path(args.model).exists():
            model, name = from_folder(pathlib.Path(args.model))
        else:
            raise ExportError(f"{args.model}: no such file or folder; models are not downloaded")
        inputs = dict(args.input)
        batch = {name: torch.zeros(args.rows, args.context, dtype=torch.long)}
        for n, below in inputs.items():  # a mask's first token counts
            batch[n] = (torch.arange(1, args.context + 1) % below).repeat(args.rows, 1)
        export(
            model,
            args.layers or find_layers(model),
            batch,
            args.output,
            args.machine or "x86-64-v3",
            device=args.device,
            inputs=inputs,
            partition=args.partition,
        )
    except ExportError as e:
        print(f"pianola-export: error: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
