"""The table of commands: their help, their completion and their flags are made of it."""

from __future__ import annotations

from tfckpt.cli.arguments.command import Command, Flag

_MODEL = Flag(
    "model", "MODULE:CALLABLE", "What returns the live objects: train:build_model in train.py."
)

_KEEP = (
    Flag(
        "keep",
        "RULE",
        "latest=3, best=2,monitor=val_loss,mode=min, every_n_steps=1000, every_n_hours=12 or "
        "pin=3,7; what any rule keeps stays.",
        many=True,
    ),
    Flag("config", "FILE", "The rules of a config, under manager:."),
    Flag("checkpoint_name", "NAME", "What names begin with, where a directory has several."),
)

_SELECTION = (
    Flag("include", "GLOB", "Take these values alone, by their new names.", many=True),
    Flag("exclude", "GLOB", "Leave these values out, by their new names.", many=True),
    Flag("rename", "OLD=NEW", "New names, with the same wildcards.", many=True),
    Flag("drop_optimizer", "", "Leave out what belongs to an optimizer."),
    Flag(
        "cast",
        "[GLOB=]DTYPE",
        "Another type, for all floating-point weights and slots or what GLOB selects.",
        many=True,
    ),
    Flag("average", "PATH", "Average the weights of SRC with those of this one.", many=True),
    Flag("shard_size", "SIZE", "Begin a new data file before one has more: 500M, 2G."),
    Flag("config", "FILE", "Take the rules from a policy in a config."),
    Flag("policy", "NAME", "Which one, where the config has several."),
)

_LOCK = Flag(
    "lock",
    "FILE",
    "Write what everything resolves to, for a policy's `lock` key; not where it is refused.",
)

COMMANDS = (
    Command(
        "list",
        "tfckpt.cli.commands.listing",
        "DIR",
        "The checkpoints of a directory.",
        "Step, age, size, metrics and state of each, the newest first; with rules, what they keep "
        "and what they would delete. A checkpoint is committed (by tfckpt), foreign (written by "
        "others), uncommitted (by tfckpt, without its record), damaged, or torn (data alone).",
        (
            "list runs/flowers/checkpoints",
            "list runs/flowers/checkpoints --keep latest=3 --keep pin=7",
        ),
        _KEEP,
    ),
    Command(
        "inspect",
        "tfckpt.cli.commands.inspect",
        "PATH|DIR",
        "What a checkpoint holds.",
        "Its values by canonical name, with role, type and size, and sums for each subtree. Of a "
        "directory, the newest checkpoint that can be read. TensorFlow is not imported.",
        (
            "inspect runs/flowers/checkpoints",
            "inspect zoo/imagenet/ckpt-900 --values",
            "inspect zoo/imagenet/ckpt-900 --name 'model/**/bias' --slice 0:5",
            "inspect zoo/imagenet/ckpt-900 --json | jq .nbytes",
        ),
        (
            Flag("values", "", "Statistics and a small histogram of each value."),
            Flag("name", "GLOB", "Print the values that GLOB matches; re: begins a regular one."),
            Flag("slice", "INDEX", "With --name, a part of each value, as NumPy has it: 0,2:5."),
            Flag("keys", "", "TensorFlow's key of each value."),
            Flag("graph", "", "TensorFlow's object graph."),
        ),
    ),
    Command(
        "diff",
        "tfckpt.cli.commands.diff",
        "A [B]",
        "What differs between two checkpoints, or one and a model.",
        "Values that only one has, of another shape, type or value, and those that have moved: the "
        "same value under another name, by its checksum. With --model, B is what CALLABLE "
        "returns, and values are compared with --values only. Exit status 1 where anything "
        "differs.",
        (
            "diff runs/flowers/checkpoints zoo/imagenet/ckpt-900",
            "diff runs/a/ckpt-1 runs/a/ckpt-2 --values",
            "diff zoo/imagenet/ckpt-900 --model train:build_model",
        ),
        (Flag("values", "", "How far apart values are: largest and relative difference."), _MODEL),
    ),
    Command(
        "plan",
        "tfckpt.cli.commands.plan",
        "CONFIG",
        "What restoring by a config would do to a model.",
        "Value by value; nothing is assigned. CALLABLE returns the model, built, or a dict of "
        'keyword objects: {"model": model, "optimizer": optimizer}.',
        (
            "plan configs/finetune.yaml --model train:build_model",
            "plan configs/finetune.yaml --model train:build --lock f.lock.json",
        ),
        (_MODEL, _LOCK),
    ),
    Command(
        "verify",
        "tfckpt.cli.commands.verify",
        "PATH|DIR",
        "Check every checksum, and name each value that is damaged.",
        "Of a directory, those of all its checkpoints. Where a format has no checksums, its values "
        "are read. A checkpoint that is moved by --quarantine goes, whole, into "
        "DIR/quarantine/NAME; nothing is deleted.",
        ("verify runs/flowers/checkpoints", "verify runs/flowers/checkpoints --quarantine"),
        (Flag("quarantine", "", "Move what is damaged out of the way."),),
    ),
    Command(
        "prune",
        "tfckpt.cli.commands.prune",
        "DIR",
        "Delete what no rule keeps, or show what that would be.",
        "Without --yes nothing is deleted. The newest is always kept; what others wrote and what "
        "is damaged is never deleted.",
        (
            "prune runs/flowers/checkpoints --keep latest=3",
            "prune runs/flowers/checkpoints --config configs/pretrain.yaml --yes",
        ),
        (*_KEEP, Flag("yes", "", "Do it.")),
    ),
    Command(
        "adopt",
        "tfckpt.cli.commands.adopt",
        "DIR",
        "Give checkpoints that others wrote commit records.",
        "Every checksum is checked first. From then on rules of what to keep hold for them.",
        ("adopt runs/old",),
    ),
    Command(
        "rewrite",
        "tfckpt.cli.commands.rewrite",
        "SRC DST",
        "A new checkpoint made of an old one.",
        "Selects, renames and casts values, by flags or by a policy, whose `model` side is then "
        "the new checkpoint. SRC is anything that can be inspected. DST is the prefix of a TF2 "
        "checkpoint, which plain TensorFlow reads; nothing is ever written over.",
        (
            "rewrite runs/flowers/checkpoints export/flowers --drop_optimizer",
            "rewrite zoo/ckpt-900 zoo/body --include 'model/body/**' --cast bfloat16",
            "rewrite zoo/ckpt-900 zoo/new --rename 'model/body/**=model/encoder/**'",
            "rewrite runs/big/ckpt-9 runs/big/split-9 --shard_size 2G",
            "rewrite a/ckpt-9 mean/ckpt-1 --average b/ckpt-9 --average c/ckpt-9",
        ),
        _SELECTION,
    ),
    Command(
        "convert",
        "tfckpt.cli.commands.rewrite:run_convert",
        "SRC DST",
        "The values of a checkpoint in another format.",
        "DST ends with .npz, .safetensors or .weights.h5; any other name is the prefix of a TF2 "
        "checkpoint, as of rewrite. In .npz and .safetensors values have their canonical names. "
        ".weights.h5 needs --model, since Keras writes it. Nothing is ever written over.",
        (
            "convert zoo/ckpt-900 zoo/imagenet.npz --include 'model/**'",
            "convert runs/flowers flowers.safetensors --include 'model/**'",
            "convert zoo/ckpt-900 new.weights.h5 --model train:build_model",
            "convert old/weights.h5 new/ckpt-1",
        ),
        (*_SELECTION, _MODEL._replace(help="What builds the model, for .weights.h5.")),
    ),
    Command(
        "report",
        "tfckpt.cli.commands.report",
        "PATH [PATH]",
        "A page of HTML about a checkpoint, a diff or a restore.",
        "PATH is a checkpoint, or a file with what inspect, diff or plan print with --json, or a "
        "restore report; two are compared. The page needs nothing beside itself: sizes as a "
        "treemap, the values as a tree, what became of them.",
        (
            "report runs/flowers/checkpoints --html flowers.html --values",
            "report zoo/ckpt-900 runs/flowers/checkpoints --html diff.html",
            "report plan.json --html plan.html",
        ),
        (
            Flag("html", "FILE", "The page; a file that is not there yet."),
            Flag("values", "", "Read the values: statistics and histograms, or how far apart."),
        ),
        has_json=False,
    ),
    Command(
        "policy check",
        "tfckpt.cli.commands.policy:run_check",
        "CONFIG",
        "Whether a config means something.",
        "All that is wrong with it, with lines.",
        ("policy check configs/finetune.yaml",),
    ),
    Command(
        "policy schema",
        "tfckpt.cli.commands.policy:run_schema",
        "",
        "The JSON Schema of configs, for editors.",
        "",
        ("policy schema > schema.json",),
        has_json=False,
    ),
    Command(
        "policy show",
        "tfckpt.cli.commands.policy:run_show",
        "CONFIG",
        "A config with all its defaults.",
        "Presets are resolved and variables filled in; what is printed can be loaded again.",
        ("policy show configs/finetune.yaml",),
    ),
    Command(
        "completion",
        "tfckpt.cli.commands.completion",
        "bash|zsh|fish",
        "What a shell needs to complete the commands.",
        "",
        ("completion bash > ~/.local/share/bash-completion/completions/tfckpt", "completion fish"),
        has_json=False,
    ),
)
