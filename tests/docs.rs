//! The manual says what the program does: every command, option, setting and bound, and no other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use klbr::config::Config;
use klbr::limits;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(name);
    std::fs::read_to_string(path).unwrap().replace("\\-", "-").replace("\\(aq", "'").replace("\\(dq", "\"")
}

fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_klbr")).args(arguments).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// Every `--option` of a text.
fn options(text: &str) -> BTreeSet<String> {
    let part_of_name = |c: char| c.is_ascii_lowercase() || c == '-';
    text.match_indices("--")
        .map(|(at, _)| text[at..].chars().take_while(|c| part_of_name(*c)).collect::<String>())
        .filter(|name| name.len() > 2)
        .map(|name| name.trim_end_matches('-').to_owned())
        .collect()
}

#[test]
fn every_command_and_option_is_in_the_manual_and_no_other() {
    let page = page("klbr.1");
    let top = help(&[]);
    let mut known = options(&top);
    for command in commands(&top) {
        let documented = [format!(".BR {command} "), format!(".B {command}\n"), format!(".BR \"{command}")];
        assert!(documented.iter().any(|entry| page.contains(entry)), "klbr.1 has no entry for {command}");
        let text = help(&[&command]);
        known.extend(options(&text));
        for verb in commands(&text).iter().filter(|verb| *verb != "help") {
            assert!(page.contains(&format!("{verb} ")), "klbr.1 does not know {command} {verb}");
        }
    }

    // What the page says of systemctl and journalctl.
    known.extend(["--user", "--update-catalog"].map(str::to_owned));
    assert_eq!(options(&page), known);
}

#[test]
fn every_exit_status_is_in_the_manual() {
    let page = page("klbr.1");
    let after_help = help(&[]);
    let listed = after_help.split("Exit status:").nth(1).unwrap();
    for status in listed.split(';').map(|part| part.split_whitespace().next().unwrap()) {
        assert!(page.contains(&format!("\n{status}|")), "{status}");
    }
}

/// The settings that a table of the configuration knows: the parser names them when it meets another.
fn settings(table: &str) -> Vec<String> {
    let text = match table {
        "" => "unknown_setting = 1\n".to_owned(),
        _ => format!(
            "workspace = \"/w\"\n[route]\nuse = \"r\"\n[routes.r]\nkind = \"manual\"\n[{table}]\nunknown_setting = 1\n"
        )
        .replace("[routes.r]\nkind = \"manual\"\n[routes.r]", "[routes.r]")
        .replace("[route]\nuse = \"r\"\n[routes.r]\nkind = \"manual\"\n[route]", "[routes.r]\n[route]"),
    };
    let error = Config::parse(&text, Path::new("/klbr.toml")).unwrap_err();
    let shown = format!("{:?}", error.to_string());
    let (_, expected) = shown.split_once("expected").unwrap_or_else(|| panic!("{shown}"));
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_setting_is_in_the_manual_and_no_other() {
    let page = page("klbr.toml.5");
    let mut known: BTreeSet<String> = BTreeSet::new();
    for table in ["", "route", "routes.r", "limits", "sandbox"] {
        known.extend(settings(table));
    }
    for name in &known {
        let entry = [
            format!(".B {name}\n"),
            format!(".BR {name} "),
            format!(", \" {name}\n"),
            format!("\\fB{name}\\fR|"),
            format!(".SH [{name}"),
            format!(".SH [routes.NAME.{name}]"),
        ];
        assert!(entry.iter().any(|entry| page.contains(entry)), "klbr.toml.5 has no entry for {name}");
    }
    let entries = page.lines().zip(page.lines().skip(1)).filter(|(before, _)| *before == ".TP");
    let documented = entries.flat_map(|(_, entry)| entry.split([' ', '"', ',']).skip(1));
    for name in documented.filter(|word| !word.is_empty()) {
        assert!(known.contains(name), "klbr.toml.5 has an entry for {name}");
    }
    // What the examples set exists: they parse.
    let examples: Vec<&str> =
        page.split(".EX\n").skip(1).map(|part| part.split(".EE").next().unwrap()).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        Config::parse(example, Path::new("/etc/klbr.toml")).unwrap();
    }
}

#[test]
fn every_bound_of_the_manual_is_the_programs() {
    let settings = page("klbr.toml.5");
    let defaults = [
        ("sessions", limits::SESSIONS_DEFAULT as u64),
        ("hello_ms", limits::HELLO_MS_DEFAULT),
        ("interrupt_grace_ms", limits::INTERRUPT_GRACE_MS_DEFAULT),
        ("stop_grace_ms", limits::STOP_GRACE_MS_DEFAULT),
        ("steps_per_turn", u64::from(limits::STEPS_PER_TURN_DEFAULT)),
        ("requests_per_hour", u64::from(limits::REQUESTS_PER_HOUR_DEFAULT)),
        ("tokens_per_day", limits::TOKENS_PER_DAY_DEFAULT),
        ("cell_ms", limits::CELL_MS_DEFAULT),
    ];
    for (name, value) in defaults {
        assert!(settings.contains(&format!("\\fB{name}\\fR|{value}|")), "{name} = {value}");
    }
    assert!(settings.contains(&format!("at most {} bytes", limits::CONFIG_BYTES_MAX)));
    assert!(settings.contains(&format!("up to {} milliseconds", limits::RETRY_PAUSE_MS_MAX)));

    let protocol = page("klbr-protocol.7");
    let sentences = [
        format!("the\nhost keeps the last {} bytes of each", limits::TAIL_BYTES_MAX),
        format!("1 to {}.", limits::FRAME_BYTES_MAX),
        format!("nesting deeper than {};", limits::JSON_DEPTH_MAX),
        format!("not 1 to {} characters", limits::IDENTIFIER_BYTES_MAX),
        format!("Source is at most {} bytes", limits::CODE_BYTES_MAX),
        format!("at most {} bytes in {} records", limits::OUTPUT_BYTES_MAX, limits::OUTPUT_RECORDS_MAX),
        format!("a cell makes at most {}.", limits::REQUESTS_PER_CELL_MAX),
        format!("puts at most {} bytes", limits::SEND_BYTES_MAX),
        format!("at most {} seconds away", limits::WAIT_SECONDS_MAX),
        format!("at most {} files and {} bytes", limits::RELEASE_FILES_MAX, limits::RELEASE_BYTES_MAX),
        format!("A call has {} milliseconds", limits::HOOK_BUDGET_MS),
        format!("A message is at most {} bytes", limits::OPERATOR_MESSAGE_BYTES_MAX),
        format!("at most {} connections", limits::OPERATOR_CONNECTIONS_MAX),
        format!("unread for {} milliseconds", limits::OPERATOR_WRITE_MS_MAX),
    ];
    for sentence in sentences {
        assert!(protocol.contains(&sentence), "{sentence}");
    }
}

#[test]
fn every_method_of_the_operators_interface_is_in_the_manual() {
    let page = page("klbr-protocol.7");
    for line in klbr::operator::DESCRIPTION.lines().filter(|line| line.starts_with("method ")) {
        let name = line.trim_start_matches("method ").split('(').next().unwrap();
        assert!(page.contains(&format!("{name} \", ")) || page.contains(&format!(" {name} .")), "{name}");
    }
}

#[test]
fn the_pages_have_no_faults_of_form() {
    if !Command::new("groff").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: the form of the manual needs groff");
        return;
    }
    for name in ["klbr.1", "klbr.toml.5", "klbr-protocol.7"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(name);
        let output =
            Command::new("groff").args(["-man", "-t", "-Tutf8", "-ww", "-z"]).arg(path).output().unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        let faults: Vec<&str> = complaints.lines().filter(|line| !line.contains("line width")).collect();

        // A wide terminal shows wide tables; everything else is a fault.
        assert!(faults.iter().all(|line| line.starts_with("warning: file")), "{name}: {complaints}");
    }
}

#[test]
fn every_notice_of_the_journal_is_in_the_catalog_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("units/klbr.catalog");
    let text = std::fs::read_to_string(path).unwrap();
    let entries: Vec<(&str, &str)> =
        text.split("\n-- ").skip(1).map(|entry| entry.split_once('\n').unwrap()).collect();

    let listed: BTreeSet<&str> = entries.iter().map(|(id, _)| *id).collect();
    let known: BTreeSet<&str> = klbr::notice::ALL.iter().map(|(_, id)| *id).collect();
    assert_eq!(listed, known);
    assert_eq!((known.len(), entries.len()), (klbr::notice::ALL.len(), klbr::notice::ALL.len()));
    let commands = commands(&help(&[]));
    for (id, entry) in entries {
        assert!(entry.starts_with("Subject: "), "{id}");
        let (_, explanation) = entry.split_once("\n\n").unwrap();
        assert!(explanation.trim().len() > 80, "{id} says too little");
        for (at, _) in explanation.match_indices("klbr ") {
            let before = explanation[..at].chars().next_back();
            let word = explanation[at + 5..].split(|c: char| !c.is_ascii_lowercase()).next().unwrap();
            // A command stands between backquotes, or alone after a colon.
            if before == Some('`') || explanation[..at].ends_with(":\n") {
                assert!(commands.iter().any(|command| command == word), "{id}: there is no `klbr {word}`");
            }
        }
    }
}
