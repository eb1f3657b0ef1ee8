from pathlib import Path

def lines(pattern):
    files = [p for p in Path(".").glob(pattern) if "target" not in p.parts]
    return len(files), sum(len(p.read_text("utf-8").splitlines()) for p in files)

for name, pattern in [("Rust", "**/*.rs"), ("Python", "**/*.py")]:
    print("{}: {} files, {} lines".format(name, *lines(pattern)))
