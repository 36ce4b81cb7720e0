"""The command lines of which the golden files have the output; those after ``@`` at a terminal."""

from zoo.places import CONTROLS, CURSED

MODEL = "--model train_golden:build"
COMMANDS = {
    "list": f"""
@ list run
list run --json
list run --keep latest=1 --keep best=1,monitor=loss,mode=min
list damaged --keep latest=1 --keep pin=1 --json
list run --config keep.yaml
list theirs
list '{CONTROLS}'
list '{CURSED}'
@ list damaged
list mixed
list empty
list nowhere
list run --keep latest
list run --keep latest=0
list run --keep lates=1
list run --keep latest=1 --config keep.yaml
list run --config policy.yaml
list run --config wrong.yaml
list run --keep latest=1 --checkpoint-name other
list
list run run
""",
    "inspect": """
inspect run
@ inspect run
inspect run/ckpt-1 --json
@ inspect run --values
inspect bad/ckpt-1 --values --json
inspect run --keys
inspect run --name re:.*bias
inspect odd/one --name '**' --json
inspect run --name 'model/oen/**'
inspect run --name 'model/[x'
inspect theirs
inspect odd/one --values
inspect odd/one --name '**'
@ inspect values/one
inspect values/one --values
inspect values/one --keys
inspect values/one --name '**/table'
inspect values/one --name 'model/block_*/kernel'
inspect mixed
inspect bad/ckpt-2 --values
inspect bad/ckpt-2 --values --json
inspect bad/ckpt-2 --name '**'
inspect damaged
inspect damaged/ckpt-1
inspect empty
inspect nowhere/ckpt-1
inspect run --values --keys
@ inspect run --html inspected.html
inspect run --graph
inspect run --slice x
inspect run --model x:y
inspect
inspect a b
""",
    "diff": f"""
diff run/ckpt-1 run/ckpt-2
@ diff run/ckpt-1 run/ckpt-2 --values
diff run/ckpt-1 run/ckpt-2 --values --json
diff run/ckpt-1 run/ckpt-1
diff run/ckpt-1 run/ckpt-1 --json
diff run/ckpt-1 run/ckpt-2 --html differs.html
diff run '{CURSED}' --values
diff damaged run
diff run {MODEL} --values
diff bad --model train_golden:wider
diff run --model train_golden:number
diff run
diff a b c
diff run run {MODEL}
""",
    "plan": f"""
plan run {MODEL}
@ plan run {MODEL}
plan run {MODEL} --json
plan run {MODEL} --html plan.html
plan policy.yaml {MODEL}
plan missed.yaml {MODEL}
@ plan run --model train_golden:wider
plan run --model train_golden:wider --write wider.yaml
plan run {MODEL} --write fine.yaml
plan wider.yaml --model train_golden:wider
plan run {MODEL} --expect nowhere/at/all.json
plan run {MODEL} --expect policy.yaml
plan policy.yaml {MODEL} --write more.yaml
plan run
plan {MODEL}
plan run --model train_golden
plan run --model no_such_module:build
plan run --model train_golden:no_such
plan run --model train_golden:number
plan run --model train_golden:nothing
plan nowhere {MODEL}
plan wrong.yaml {MODEL}
""",
    "verify": f"""
verify run
verify run/ckpt-1
verify theirs
verify '{CONTROLS}'
verify damaged
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
rewrite bad/ckpt-1 new/b-1 --include 'model/**' --cast bf16 --json
rewrite run new/c-1 --rename 'model/one/**=model/uno/**' --drop-optimizer
rewrite run new/d-1 --drop_optimizer --exclude save_counter --shard_size 30
rewrite run/ckpt-1 new/e-1 --average run/ckpt-2 --average run/ckpt-3
rewrite run new/f-1 --config one.yaml
rewrite run new/g-1 --config policy.yaml
rewrite run new/g-1 --config policy.yaml --policy body
rewrite run new/h-1 --config policy.yaml --policy none
rewrite run new/h-1 --policy body
rewrite run new/h-1 --config one.yaml --include 'model/**'
rewrite run new/h-1 --config nowhere.yaml
rewrite run new/h-1 --config model.yaml
rewrite run new/h-1 --rename a
rewrite run new/h-1 --rename 'model/**=model'
rewrite run new/h-1 --cast float99
rewrite run new/h-1 --cast 'model/x=float16'
rewrite run new/h-1 --cast 'model/**=string'
rewrite run new/h-1 --cast 'model/**=bool'
rewrite run new/h-1 --shard_size 3Q
rewrite run new/h-1 --shard_size 0
rewrite run new/h-1 --include 'model/none/**'
rewrite run new/h-1 --rename 'model/one/*=model/two/*'
rewrite run new/h-1 --average run/ckpt-9
rewrite values/one new/h-1 --include 'model/great' --cast float16
rewrite bad new/i-1
rewrite run
convert run run.npz --include 'model/**'
convert run run.npz
convert bad/ckpt-1 more.npz --json
convert run run.safetensors
convert run new.weights.h5 {MODEL}
convert run new.weights.h5
convert run new2.weights.h5 {MODEL} --cast float16
convert run new2.weights.h5 {MODEL} --config one.yaml --policy q
convert run new2.weights.h5 {MODEL} --config one.yaml --include 'model/**'
convert odd/one new2.weights.h5 {MODEL}
convert run new3.weights.h5 --model train_golden:compiled
convert run new4.weights.h5 --model train_golden:number
convert run x.npz {MODEL}
convert run x.onnx
convert run x.h5
convert run x.npz --shard_size 1K
convert values/one x.npz --include '**/half'
convert values/one x.npz --include '**/words'
convert values/one x.npz --include '**/table'
convert values/one x.safetensors --include '**/complex'
convert values/one x.safetensors --include '**/vars/**' --include '**/table'
convert run new/k-1
""",
    "prove": f"""
prove probed {MODEL} --restore probed
prove probed {MODEL} --restore probed --json
prove run {MODEL}
prove probed
replay keep.yaml
""",
    "policy": """
policy check one.yaml
policy check policy.yaml --json
policy check wrong.yaml
policy check wrong.yaml --json
policy check unread.yaml
policy check idle.yaml
policy check idle.yaml --json
policy check keep.yaml
policy check nowhere.yaml
policy show saving.yaml
policy show one.yaml --json
policy show wrong.yaml
policy schema x
policy
policy chek one.yaml
policy suggest run
""",
    "prune": f"""
prune run --keep latest=2
prune run --keep latest=1 --keep best=1,monitor=loss,mode=min --json
@ prune run --keep latest=1
prune run
prune run --keep pin=9
prune run --keep best=1,monitor=los,mode=min
prune run --keep latest=2 --yes
prune run --keep latest=2 --yes
prune run --keep latest=1 --yes --json
prune theirs --keep latest=1
prune damaged --keep latest=1
prune empty --keep latest=1
prune '{CONTROLS}' --keep latest=1
prune run --keep latest=1 --checkpoint_name no
""",
    "report": """
report run
report run
report run --html report-run.html --keep latest=1 --force
report run/ckpt-3
report run run
report empty
report nowhere
report one.yaml
report run --keep latest
report run --json
report
@ doctor run
doctor damaged
doctor nowhere
doctor run --json
doctor a b
""",
    "main": """

inspct run
restore run
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
--version
version
list run -h
policy --help
""",
}
