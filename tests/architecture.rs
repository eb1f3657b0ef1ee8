//! The house: a module uses only what stands below it, and no room outgrows its idea.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};

/// The layers, from the top. Modules of one layer of boundaries do not know one another.
const EDGE: &[&str] = &["main", "cli", "serve", "init", "operator"];
const DECIDERS: &[&str] = &["session", "requests", "prompt", "worker"];
const BOUNDARIES: &[&str] = &["containment", "route", "store", "systemd", "wire"];
const VOCABULARY: &[&str] = &["event", "cell", "release", "config", "clock", "id", "limits", "notice"];
const LINES_MAX: usize = 450;
const FORBIDDEN_NAMES: &[&str] = &["utils", "util", "common", "helpers", "types", "manager", "misc"];

/// What a module may use; it is in its own list.
fn may_use(module: &str) -> Vec<&'static str> {
    let all =
        |lists: &[&[&'static str]]| lists.iter().flat_map(|list| list.iter().copied()).collect::<Vec<_>>();
    match module {
        // Thin: it speaks to the operator socket, and starts what has a composition root.
        "cli" => {
            let mut allowed = all(&[VOCABULARY]);
            allowed.extend(["cli", "serve", "init", "operator"]);
            allowed
        }
        _ if EDGE.contains(&module) => all(&[EDGE, DECIDERS, BOUNDARIES, VOCABULARY]),
        "prompt" => {
            // Pure: events in, bytes out.
            let mut allowed = all(&[VOCABULARY]);
            allowed.push("prompt");
            allowed
        }
        "worker" => {
            let mut allowed = all(&[VOCABULARY]);
            allowed.extend(["worker", "containment", "wire"]);
            allowed
        }
        "requests" => {
            let mut allowed = all(&[BOUNDARIES, VOCABULARY]);
            allowed.extend(["requests", "worker"]);
            allowed
        }
        "session" => all(&[DECIDERS, BOUNDARIES, VOCABULARY]),
        _ => {
            let own = BOUNDARIES.iter().find(|name| **name == module).copied();
            let mut allowed = all(&[VOCABULARY]);
            allowed.extend(own);
            allowed
        }
    }
}

/// The modules that a source text names by `crate::`.
fn uses(text: &str) -> Vec<String> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let name = |part: &str| part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    code.match_indices("crate::")
        .map(|(at, found)| name(&code[at + found.len()..]))
        .filter(|n| !n.is_empty())
        .collect()
}

fn violations(module: &str, text: &str) -> Vec<String> {
    let allowed = may_use(module);
    uses(text).into_iter().filter(|used| !allowed.contains(&used.as_str())).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|suffix| suffix == "rs") {
            found.push(path);
        }
    }
    found
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_module_uses_only_what_stands_below_it() {
    let folder = root().join("src");
    let mut wrong = Vec::new();
    for path in sources(&folder) {
        let place = path.strip_prefix(&folder).unwrap().with_extension("");
        let module = place.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
        if module == "lib" {
            continue;
        }
        let known =
            [EDGE, DECIDERS, BOUNDARIES, VOCABULARY].iter().any(|layer| layer.contains(&module.as_str()));
        assert!(known, "{module} is in no layer: put it into one");
        let text = std::fs::read_to_string(&path).unwrap();
        // Unit tests may use what they need.
        let code = text.split("#[cfg(test)]").next().unwrap();
        for used in violations(&module, code) {
            wrong.push(format!("{} uses {used}", path.display()));
        }
    }

    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_check_above_can_fail() {
    assert_eq!(violations("store", "use crate::session::Host;\n// crate::cli\n"), ["session"]);
    assert_eq!(violations("route", "let a = crate::store::Store;"), ["store"]);
    assert_eq!(violations("cli", "use crate::store::Store;"), ["store"]);
    assert_eq!(violations("prompt", "use crate::wire::message::Message;"), ["wire"]);
    assert_eq!(violations("session", "use crate::store::Store;"), Vec::<String>::new());
}

#[test]
fn no_file_outgrows_its_room_and_none_is_a_drawer() {
    let mut wrong = Vec::new();
    for folder in ["src", "tests", "benches"] {
        for path in sources(&root().join(folder)) {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            if lines > LINES_MAX {
                wrong.push(format!("{} has {lines} lines", path.display()));
            }
            let name = path.file_stem().unwrap().to_str().unwrap();
            if FORBIDDEN_NAMES.contains(&name) {
                wrong.push(format!("{} says nothing about what is in it", path.display()));
            }
        }
    }

    assert_eq!(wrong, Vec::<String>::new());
}
