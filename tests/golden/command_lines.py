"""The command lines of which the golden files have the output; those after ``@`` at a terminal."""

SCRIPT = """
import keras

def build(units=3):
    layers = [keras.layers.Dense(units, name="one"), keras.layers.Dense(2, name="two")]
    model = keras.Sequential([keras.Input((4,)), *layers], name="net")
    for layer in layers:
        layer.kernel.assign(0.5 * keras.ops.ones_like(layer.kernel))
    return model

def compiled():
    model = build()
    model.compile("sgd", "mse")
    return model

def wider():
    return build(5)

def number():
    return 7

def broken():
    print("building")
    raise ValueError("not today")
"""
CONFIGS = {
    "keep.yaml": "version: 1\nmanager: {directory: run, keep: [{latest: 1}]}\n",
    "policy.yaml": """
version: 1
restore: {directory: run, policy: body}
policies:
  body: {include: ["model/one/**"]}
  other: {exclude: ["model/two/**"], on_missing: ignore}
""",
    "one.yaml": "version: 1\npolicies:\n  body: {include: ['model/one/**']}\n",
    "wrong.yaml": "version: 1\npolicies:\n  body: {inclde: [a], on_missing: maybe}\n",
    "unread.yaml": "version: 1\nrestore: [\n",
    "idle.yaml": "version: 1\nmanager: {directory: run}\nrestore: {directory: other, policy: p}\n"
    "policies: {p: {include: ['model/**']}, q: {}}\n",
}
MODEL = "--model train_golden:build"
COMMANDS = {
    "list": """
list run
list run --json
@ list run
list run --keep latest=1
list run --keep latest=1 --keep pin=1 --json
list run --keep=best=1,monitor=loss,mode=min
list run --config keep.yaml
list theirs
list odd
list damaged
@ list damaged
list damaged --json
list empty
list nowhere
list run --keep latest
list run --keep latest=0
list run --keep lates=1
list run --keep latest=1 --config keep.yaml
list run --config policy.yaml
list run --config wrong.yaml
list run --keep latest=1 --checkpoint_name ckpt
list run --keep latest=1 --checkpoint-name other
list
list run run
""",
    "inspect": """
inspect run
@ inspect run
inspect run/ckpt-1
inspect run/ckpt-1 --json
inspect run --values
@ inspect run --values
inspect run --values --json
inspect run --keys
inspect run --name 'model/**/bias'
inspect run --name model/one/bias --json
inspect run --name re:.*bias
inspect run --name 'model/oen/**'
inspect run --name 'model/[x'
inspect theirs
inspect odd/one --values
inspect odd/one --name '**' --json
inspect bad/ckpt-2 --values
inspect bad/ckpt-2 --values --json
inspect bad/ckpt-2 --name model/w
inspect damaged
inspect damaged/ckpt-1
inspect empty
inspect nowhere/ckpt-1
inspect run --values --keys
inspect run --graph
inspect run --slice x
inspect
inspect a b
""",
    "diff": f"""
diff run/ckpt-1 run/ckpt-2
@ diff run/ckpt-1 run/ckpt-2
diff run/ckpt-1 run/ckpt-2 --values
@ diff run/ckpt-1 run/ckpt-2 --values
diff run/ckpt-1 run/ckpt-2 --values --json
diff run/ckpt-1 run/ckpt-1
diff run/ckpt-1 run/ckpt-1 --json
diff run odd/one
diff run theirs
diff damaged run
diff run {MODEL}
diff run {MODEL} --values
diff run --model train_golden:wider --json
diff run --model train_golden:number
diff run
diff a b c
diff run run {MODEL}
""",
    "plan": f"""
plan run {MODEL}
@ plan run {MODEL}
plan run {MODEL} --json
plan policy.yaml {MODEL}
plan run --model train_golden:wider
@ plan run --model train_golden:wider
plan run --model train_golden:wider --write wider.yaml
plan run --model train_golden:wider --write wider.yaml
plan run {MODEL} --write fine.yaml
plan wider.yaml --model train_golden:wider --lock wider.lock.json
plan wider.yaml --model train_golden:wider --lock wider.lock.json
plan run/ckpt-1 {MODEL} --lock wider.lock.json
plan run {MODEL} --lock nowhere/at/all.json
plan policy.yaml {MODEL} --write more.yaml
plan run
plan
plan run --model train_golden
plan run --model no_such_module:build
plan run --model train_golden:no_such
plan run --model train_golden:number
plan nowhere {MODEL}
plan wrong.yaml {MODEL}
""",
    "verify": """
verify run
verify run --json
verify run/ckpt-1
verify theirs
verify odd
verify damaged
verify bad
verify bad --json
verify bad --quarantine
verify bad
verify empty
verify nowhere
verify
""",
    "rewrite": f"""
rewrite run new/a-1
rewrite run new/a-1
rewrite run new/b-1 --include 'model/**' --cast bf16 --json
rewrite run new/c-1 --rename 'model/one/**=model/uno/**' --drop-optimizer
rewrite run new/d-1 --drop_optimizer --exclude save_counter --shard_size 30
rewrite run/ckpt-1 new/e-1 --average run/ckpt-2 --average run/ckpt-3
rewrite run new/f-1 --config one.yaml
rewrite run new/g-1 --config policy.yaml
rewrite run new/g-1 --config policy.yaml --policy body
rewrite run new/h-1 --config policy.yaml --policy none
rewrite run new/h-1 --policy body
rewrite run new/h-1 --config one.yaml --include 'model/**'
rewrite run new/h-1 --rename a
rewrite run new/h-1 --cast float99
rewrite run new/h-1 --cast 'model/x=float16'
rewrite run new/h-1 --shard_size 3Q
rewrite run new/h-1 --include 'model/none/**'
rewrite run new/h-1 --rename 'model/one/*=model/two/*'
rewrite damaged new/i-1
rewrite bad new/i-1
rewrite bad/ckpt-2 new/j-1
rewrite run
convert run run.npz --include 'model/**'
convert run run.npz
convert run more.npz --json
convert run run.safetensors
convert run new.weights.h5 {MODEL}
convert run new.weights.h5
convert run new2.weights.h5 {MODEL} --cast float16
convert run new3.weights.h5 --model train_golden:compiled
convert run new4.weights.h5 --model train_golden:number
convert run x.npz {MODEL}
convert run x.onnx
convert run x.npz --shard_size 1K
convert run new/k-1
convert run new/l-1 --drop_optimizer --json
""",
    "policy": """
policy check one.yaml
policy check policy.yaml --json
policy check wrong.yaml
policy check wrong.yaml --json
policy check unread.yaml
policy check idle.yaml
policy check idle.yaml --json
policy check nowhere.yaml
policy show policy.yaml
policy show one.yaml --json
policy show wrong.yaml
policy schema x
policy check
policy
policy chek one.yaml
policy suggest run
""",
    "prune": """
prune run --keep latest=2
prune run --keep latest=1 --keep best=1,monitor=loss,mode=min --json
@ prune run --keep latest=1
prune run
prune run --keep pin=9
prune run --keep best=1,monitor=los,mode=min
prune run --config keep.yaml
prune run --keep latest=2 --yes
prune run --keep latest=2 --yes
prune run --keep latest=1 --yes --json
prune theirs --keep latest=1
prune damaged --keep latest=1
prune empty --keep latest=1
prune odd --keep latest=1
prune run --keep latest=1 --checkpoint_name no
prune
""",
    "report": """
report run
report run
report run --html page.html --keep latest=1
report run --html page.html --force
report run/ckpt-3 --values
report run/ckpt-1 run/ckpt-2 --html diff.html
report policy.yaml --model train_golden:build --html plan.html
report run/ckpt-1 run/ckpt-2 --model train_golden:build
report empty
report run --keep latest
report run --json
report
doctor run
doctor damaged
doctor nowhere
doctor run --json
doctor a b
""",
    "main": """
inspct run
restore run
completion bash
adopt run
--json list run
inspect run --jsn
list run --xyz
list run --keep
inspect --keys run
list --json --keep latest=1 run --keep=pin=1 --checkpoint-name=ckpt --checkpoint_name other
inspect -- run run
inspect --keys -- --json
inspect run -- --json
inspect run --name -x
inspect run --name=-x
diff run/ckpt-1 --json run/ckpt-1
prune run --keep latest=1 --yes=false
prune run --keep latest=1 --noyes
list -json run
list run --js
--help
help
-h
policy --help
--version
version
list --help
list run -h
inspect --help
diff --help
plan --help
verify --help
prune --help
rewrite --help
convert --help
report --help
doctor --help
policy check --help
policy schema --help
policy show --help
""",
}
