"""The locked environment of `fasttext`: its build of fastText predicts rightly, which others with numpy 2 do not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

_TRAIN = """
import json, random, sys
import fasttext

random.seed(1)
def text(label):
    own = [f"{label}{random.randrange(50)}" for _ in range(5)]
    return " ".join(own + [f"common{random.randrange(200)}" for _ in range(20)])

with open("train.txt", "w") as file:
    for number in range(1000):
        label = ("good", "bad")[number % 2]
        file.write(f"__label__{label} {text(label)}\\n")
model = fasttext.train_supervised("train.txt", epoch=25, lr=1.0, dim=8, bucket=1000, thread=1, seed=1, verbose=0)
model.save_model("model.bin")
model = fasttext.load_model("model.bin")
labels = [("good", "bad")[number % 2] for number in range(50)]
texts = [text(label) for label in labels]
names, scores = model.predict(texts, k=2)
many = [[list(some), [float(score) for score in of]] for some, of in zip(names, scores)]
one = [model.predict(text, k=2) for text in texts]
one = [[list(some), [float(score) for score in of]] for some, of in one]
print(json.dumps({"labels": labels, "one": one, "many": many}))
"""


def test_training_and_both_ways_to_predict_are_right(fasttext_python: Path, tmp_path: Path) -> None:
    done = subprocess.run([fasttext_python, "-c", _TRAIN], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for way in ("one", "many"):
        assert [names[0] for names, _ in found[way]] == [f"__label__{label}" for label in found["labels"]]
        for _, scores in found[way]:
            assert scores[0] > 0.9
            assert abs(sum(scores) - 1) < 0.001, "each label has a score of its own"
    assert all(
        abs(a - b) < 1e-6
        for one, many in zip(found["one"], found["many"], strict=True)
        for a, b in zip(one[1], many[1], strict=True)
    )
