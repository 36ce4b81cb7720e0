"""The table of all commands; help and flag parsing are derived from it."""

from __future__ import annotations

from tfckpt.cli.arguments.command import Command, Flag

# What somebody may look for here, and what does it.
INSTEAD = {
    "inspect --graph": "--keys shows the path of each value in TensorFlow's object graph",
    "inspect --slice": "`tfckpt convert PATH FILE.npz --include GLOB` writes values for NumPy",
    "inspect --model": "`tfckpt plan PATH --model MODULE:CALLABLE` shows which value goes where",
    "report --values": "`tfckpt inspect PATH --values` shows statistics, with --json all of them",
    "policy suggest": "`tfckpt plan PATH --model MODULE:CALLABLE --write FILE` writes a policy",
}

_MODEL = Flag(
    "model",
    "MODULE:CALLABLE",
    "Function that returns the model or a dict of objects, e.g. train:build_model.",
)

_KEEP = (
    Flag(
        "keep",
        "RULE",
        "Retention rule: latest=3, best=2,monitor=val_loss,mode=min, every_n_steps=1000, "
        "every_n_hours=12 or pin=3,7. A checkpoint that any rule keeps is kept.",
        many=True,
    ),
    Flag("config", "FILE", "Use the retention rules of this config (manager: keep:)."),
    Flag(
        "checkpoint_name",
        "NAME",
        "Name before the number, if DIR has checkpoints of several names.",
    ),
)

_SELECTION = (
    Flag("include", "GLOB", "Write only these values (new names).", many=True),
    Flag("exclude", "GLOB", "Do not write these values (new names).", many=True),
    Flag("rename", "OLD=NEW", "Rename values; OLD and NEW have the same wildcards.", many=True),
    Flag("drop_optimizer", "", "Do not write the state of optimizers."),
    Flag(
        "cast",
        "[GLOB=]DTYPE",
        "Cast all floating-point weights and slots, or the values that GLOB selects.",
        many=True,
    ),
    Flag("average", "PATH", "Average the weights of SRC with those of this checkpoint.", many=True),
    Flag("shard_size", "SIZE", "Start a new data file before one exceeds SIZE, e.g. 500M or 2G."),
    Flag("config", "FILE", "Use the rules of a policy in this config."),
    Flag("policy", "NAME", "The policy to use, if the config has several."),
)

_LOCK = Flag(
    "lock",
    "FILE",
    "Write the resolved plan, for a policy's `lock` key, unless the plan is refused.",
)

_WRITE = Flag(
    "write",
    "FILE",
    "Write a config with the policy that would be accepted in place of a refused PATH; the file "
    "must not exist. The exit status is then 0.",
)

COMMANDS = (
    Command(
        "list",
        "tfckpt.cli.commands.listing",
        "DIR",
        "List the checkpoints of a directory.",
        "Shows step, age, size, metrics and state of each, newest first; with retention rules, "
        "also what they keep and what they would delete. The states: committed (by tfckpt), "
        "foreign (written by other software), uncommitted (written by tfckpt, without a commit "
        "record), damaged, torn (data files without an index).",
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
        "Show the contents of a checkpoint.",
        "Lists its values by canonical name, with role, type, size, and totals for each subtree. "
        "For a directory, shows the newest readable checkpoint.",
        (
            "inspect runs/flowers/checkpoints",
            "inspect zoo/imagenet/ckpt-900 --values",
            "inspect zoo/imagenet/ckpt-900 --name 'model/**/bias'",
            "inspect zoo/imagenet/ckpt-900 --json | jq .nbytes",
        ),
        (
            Flag("values", "", "Show statistics and a small histogram of each value."),
            Flag(
                "name",
                "GLOB",
                "Print the values that match GLOB, or a regular expression after re:.",
            ),
            Flag("keys", "", "Show the checkpoint key of each value."),
        ),
    ),
    Command(
        "diff",
        "tfckpt.cli.commands.diff",
        "A [B]",
        "Compare two checkpoints, or a checkpoint and a model.",
        "Shows values that only one side has, values whose shape, type or content differs, and "
        "values that moved: the same content under another name, found by checksum. With --model, "
        "B is the model that CALLABLE returns, and contents are compared only with --values. Exit "
        "status 1 if anything differs.",
        (
            "diff runs/flowers/checkpoints zoo/imagenet/ckpt-900",
            "diff runs/a/ckpt-1 runs/a/ckpt-2 --values",
            "diff zoo/imagenet/ckpt-900 --model train:build_model",
        ),
        (Flag("values", "", "Show the largest and the relative difference of values."), _MODEL),
    ),
    Command(
        "plan",
        "tfckpt.cli.commands.plan",
        "CONFIG|PATH|DIR",
        "Show what a restore would do, without doing it.",
        "Shows each value; nothing is assigned. Of a checkpoint or a directory, it is the restore "
        "without a policy. A refused plan ends with a policy that would be accepted, if one was "
        "found; layers that nothing distinguishes are listed for you to decide. CALLABLE "
        'returns the built model, or a dict of objects: {"model": model, "optimizer": optimizer}.',
        (
            "plan configs/finetune.yaml --model train:build_model",
            "plan zoo/imagenet/ckpt-900 --model train:build_model",
            "plan configs/finetune.yaml --model train:build --lock f.lock.json",
            "plan zoo/vit.h5 --model train:build --write vit.yaml",
        ),
        (_MODEL, _LOCK, _WRITE),
    ),
    Command(
        "verify",
        "tfckpt.cli.commands.verify",
        "PATH|DIR",
        "Check every checksum and list damaged values.",
        "For a directory, checks all its checkpoints. In formats without checksums, only checks "
        "that all values can be read. --quarantine moves all files of a damaged checkpoint to "
        "DIR/quarantine/NAME; nothing is deleted.",
        ("verify runs/flowers/checkpoints", "verify runs/flowers/checkpoints --quarantine"),
        (Flag("quarantine", "", "Move damaged checkpoints to DIR/quarantine."),),
    ),
    Command(
        "prune",
        "tfckpt.cli.commands.prune",
        "DIR",
        "Delete the checkpoints that no retention rule keeps.",
        "Without --yes, only shows what would be deleted. Never deletes the newest checkpoint, "
        "damaged ones, or those that other software wrote.",
        (
            "prune runs/flowers/checkpoints --keep latest=3",
            "prune runs/flowers/checkpoints --config configs/pretrain.yaml --yes",
        ),
        (*_KEEP, Flag("yes", "", "Delete them.")),
    ),
    Command(
        "rewrite",
        "tfckpt.cli.commands.rewrite",
        "SRC DST",
        "Make a new checkpoint from an old one.",
        "Selects, renames and casts values, by flags or by a policy; the new checkpoint takes the "
        "place of the policy's model. SRC is any checkpoint that `inspect` can read. DST is the "
        "prefix of a TF2 checkpoint, readable by plain TensorFlow. Never overwrites files.",
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
        "Convert a checkpoint to another format.",
        "DST ends with .npz, .safetensors or .weights.h5; any other name is the prefix of a TF2 "
        "checkpoint, as for `rewrite`. Values have their canonical names in .npz and .safetensors. "
        ".weights.h5 needs --model, because Keras writes it. Never overwrites files.",
        (
            "convert zoo/ckpt-900 zoo/imagenet.npz --include 'model/**'",
            "convert runs/flowers flowers.safetensors --include 'model/**'",
            "convert zoo/ckpt-900 new.weights.h5 --model train:build_model",
            "convert old/weights.h5 new/ckpt-1",
        ),
        (*_SELECTION, _MODEL._replace(help="Function that builds the model, for .weights.h5.")),
    ),
    Command(
        "report",
        "tfckpt.cli.commands.report",
        "DIR",
        "Write an HTML page about a run.",
        "Shows its checkpoints on a line of steps, with their metrics, what is kept and why. The "
        "page is one file, which loads nothing.",
        (
            "report runs/flowers/checkpoints --open",
            "report runs/flowers/checkpoints --keep latest=3 --html flowers.html",
        ),
        (
            Flag("html", "FILE", "The file to write; report-NAME.html by default."),
            *_KEEP,
            Flag("force", "", "Write over an existing file."),
            Flag("open", "", "Show the page in the browser."),
        ),
        has_json=False,
    ),
    Command(
        "doctor",
        "tfckpt.cli.commands.doctor",
        "[DIR]",
        "Show what a bug report needs.",
        "Versions; of a directory its file system, lock, free space and checkpoints, and what the "
        "next start would do. Changes nothing.",
        ("doctor runs/flowers/checkpoints",),
    ),
    Command(
        "policy check",
        "tfckpt.cli.commands.policy:run_check",
        "CONFIG",
        "Check a config, without a model or checkpoint.",
        "Lists every error with its line.",
        ("policy check configs/finetune.yaml",),
    ),
    Command(
        "policy schema",
        "tfckpt.cli.commands.policy:run_schema",
        "",
        "Print the JSON Schema of configs, for editors.",
        "",
        ("policy schema > schema.json",),
        has_json=False,
    ),
    Command(
        "policy show",
        "tfckpt.cli.commands.policy:run_show",
        "CONFIG",
        "Print a config with all defaults.",
        "Presets and variables are resolved.",
        ("policy show configs/finetune.yaml",),
    ),
)
