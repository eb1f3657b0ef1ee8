//! Disks, locks and configurations that a host cannot work with: status 6, one line, nothing lost.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::{KLBR, PATIENCE, TestHost, is_root, texts};

/// Starts a second `klbr serve` on the same places; its exit status and the lines of its last words.
fn serve(host: &TestHost) -> (Option<i32>, Vec<String>) {
    let output = host.command(&["serve"]).env("KLBR_LOG", "off").stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.stdout.len(), 0);
    let lines = String::from_utf8(output.stderr).unwrap().lines().map(str::to_owned).collect();
    (output.status.code(), lines)
}

fn refused(host: &TestHost, words: &[&str]) {
    let (status, lines) = serve(host);
    assert_eq!(status, Some(6), "{lines:?}");
    assert_eq!(lines.len(), 1, "{lines:?}");
    for word in words {
        assert!(lines[0].contains(word), "{word}: {lines:?}");
    }
}

#[test]
fn a_second_host_is_told_who_has_the_data() {
    let host = TestHost::manual();
    let pid = host.pid().to_string();
    refused(&host, &[&pid, "another data directory"]);

    assert_eq!(host.say("1 + 1"), "2", "the first one is not harmed");
}

#[test]
fn a_wrong_configuration_is_named_with_its_line() {
    let host = TestHost::stopped();
    std::fs::write(host.path("klbr.toml"), "workspace = \"/\"\ncolour = 1\n").unwrap();
    let (status, lines) = serve(&host);
    assert_eq!(status, Some(6), "{lines:?}");
    assert!(lines.join("\n").contains("colour"), "{lines:?}");

    host.use_config("containment = \"systemd\"\n[route]\nuse = \"m\"\n[routes.m]\nkind = \"manual\"\n");
    refused(&host, &["no service manager", "loginctl enable-linger", "process"]);
    host.use_route("base_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\napi_key_env = \"KLBR_NO_SUCH\"");
    refused(&host, &["KLBR_NO_SUCH"]);
    std::fs::remove_file(host.path("klbr.toml")).unwrap();
    refused(&host, &["klbr init"]);
}

#[test]
fn root_is_refused_unless_it_is_meant_and_keeps_few_capabilities() {
    if !is_root("a host that runs as root") {
        return;
    }
    let mut host = TestHost::stopped();
    let output = host.command(&["serve"]).env_remove("KLBR_ALLOW_ROOT").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--allow-root"));

    host.start();
    let status =
        host.say("import re; re.findall('Cap(?:Prm|Bnd|Inh|Amb):\\t(.*)', open('/proc/self/status').read())");
    // KILL, DAC_OVERRIDE, DAC_READ_SEARCH, SYS_PTRACE, SYS_NICE: capabilities(7) has the bits.
    let bits = (1_u64 << 5) | (1 << 1) | (1 << 2) | (1 << 19) | (1 << 23);
    assert_eq!(status, format!("['{0:016x}', '{bits:016x}', '{bits:016x}', '{0:016x}']", 0));
}

#[test]
fn a_reload_keeps_the_last_good_configuration() {
    let host = TestHost::manual();
    let good = host.config();
    assert_eq!(host.run(&["reload"]).stdout, b"nothing changed\n");

    std::fs::write(host.path("klbr.toml"), format!("{good}\ncolour = 1\n")).unwrap();
    let refused = host.run(&["reload"]);
    assert_eq!(refused.status.code(), Some(6));
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(words.contains("colour") && words.contains("klbr reload"), "{words}");
    assert_eq!(host.say("1 + 1"), "2");

    host.use_config("python = \"/usr/bin/python3\"\n[route]\nuse = \"m\"\n[routes.m]\nkind = \"manual\"\n[limits]\ncell_ms = 400\n");
    let changed = &host.json(&["reload", "--json"])[0];
    assert!(changed["in_force"].as_array().unwrap().iter().any(|name| name == "limits"), "{changed}");
    assert!(changed["need_restart"].as_array().unwrap().iter().any(|name| name == "python"), "{changed}");
    // The next workbench has the new limit.
    assert!(host.run(&["reset"]).status.success());
    let slow = host.run(&["exec", "import time; time.sleep(30)"]);
    assert_eq!(slow.status.code(), Some(1), "{slow:?}");

    // A signal asks for the same, and says so in the log.
    let sent = Command::new("kill").args(["-HUP", &host.pid().to_string()]).status().unwrap();
    assert!(sent.success());
    let end = Instant::now() + PATIENCE;
    while host.errors().matches("the configuration was read again").count() < 3 {
        assert!(Instant::now() < end, "{}", host.errors());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn data_that_is_not_ours_is_refused_and_left_alone() {
    let host = TestHost::stopped();
    let file = host.path("data/klbr.db");
    let good = std::fs::read(&file).unwrap();
    let garbage = b"not a database ".repeat(600);
    std::fs::write(&file, &garbage).unwrap();
    refused(&host, &["not a database", "backup"]);
    assert_eq!(std::fs::read(&file).unwrap(), garbage);

    std::fs::write(&file, &good).unwrap();
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "user_version", 77).unwrap();
    drop(connection);
    refused(&host, &["schema 77", "later one"]);
}

#[test]
fn a_release_that_changed_is_refused() {
    let host = TestHost::stopped();
    let release = std::fs::read_dir(host.path("data/releases")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(release.join("more.py"), "# not reviewed\n").unwrap();

    refused(&host, &["release"]);
}

#[test]
fn data_that_was_never_made_asks_for_init() {
    let host = TestHost::stopped();
    std::fs::remove_dir_all(host.path("data")).unwrap();

    refused(&host, &["klbr init"]);
}

/// A host whose data lies on a file system of this size, which only it sees.
fn on_small_disk(size: &str) -> TestHost {
    let mut host = TestHost::stopped();
    std::fs::rename(host.path("data"), host.path("made")).unwrap();
    std::fs::create_dir(host.path("data")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={size},mode=700 none '{data}' && cp -a '{made}/.' '{data}' && exec \"$@\"",
        data = host.path("data").display(),
        made = host.path("made").display()
    );
    host.wrapper = ["unshare", "-m", "sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    host
}

#[test]
fn a_full_disk_ends_the_host_with_6_and_loses_nothing_that_was_answered() {
    if !is_root("a file system of its own") {
        return;
    }
    let mut host = on_small_disk("3m");
    host.start();
    let text = "x".repeat(100_000);
    let mut answered = 0;
    while answered < 200 {
        let output = host.run(&["send", &format!("# {text}"), "--json"]);
        if !output.status.success() {
            break;
        }
        answered += 1;
    }
    assert!((1..200).contains(&answered), "{answered}");
    let output = host.wait();

    assert_eq!(output.status.code(), Some(6), "{}", host.errors());
    let last = host.errors().lines().last().unwrap().to_owned();
    assert!(last.contains("no space is left") && last.contains("make room"), "{last}");
}

#[test]
fn a_read_only_disk_is_named() {
    if !is_root("a read-only mount") {
        return;
    }
    let host = TestHost::stopped();
    let data = host.path("data");
    let script =
        format!("mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}' && exec \"$@\"", data.display());
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh", KLBR, "serve", "--allow-root"]);
    command.env("KLBR_DATA", &data).env("KLBR_CONFIG", host.path("klbr.toml")).env("KLBR_LOG", "off");
    let output = command.env("KLBR_SOCKET", host.path("klbr.sock")).output().unwrap();

    assert_eq!(output.status.code(), Some(6));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.to_lowercase().contains("read-only"), "{words}");
}

#[test]
fn a_socket_that_is_left_over_is_replaced_and_an_odd_locale_changes_nothing() {
    let mut host = TestHost::manual();
    host.kill();
    assert!(host.path("klbr.sock").exists());
    host.wrapper =
        ["env", "LC_ALL=tr_TR.ISO-8859-9", "LANG=C", "TZ=Pacific/Apia"].map(str::to_owned).to_vec();
    host.start();

    assert_eq!(host.say("'İ' + 'ß'"), "'İß'");
    assert_eq!(texts(&host.events("operator.input")), ["'İ' + 'ß'"]);
}

#[test]
fn ten_thousand_inputs_are_logged_and_taken_up_once() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut host = TestHost::stopped();
    let answer = serde_json::json!({"text": "seen"});
    host.use_script(&vec![answer; 10_100]);
    let unbounded = format!("{}\n[limits]\nrequests_per_hour = 1000000\n", host.config());
    std::fs::write(host.path("klbr.toml"), unbounded).unwrap();
    host.start();
    let socket = std::os::unix::net::UnixStream::connect(host.path("klbr.sock")).unwrap();
    let mut writer = socket.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        for number in 0..10_000 {
            let call = serde_json::json!({"method": "org.klbr.Operator.Send",
                "parameters": {"session": "root", "text": format!("n {number}")}});
            writer.write_all(format!("{call}\0").as_bytes()).unwrap();
        }
    });
    let mut reader = BufReader::new(socket);
    for _ in 0..10_000 {
        let mut reply = Vec::new();
        reader.read_until(0, &mut reply).unwrap();
        assert!(!reply.windows(7).any(|part| part == b"\"error\""), "{}", String::from_utf8_lossy(&reply));
    }
    sender.join().unwrap();
    let end = std::time::Instant::now() + harness::PATIENCE;
    while host.json(&["status", "--json"])[0]["sessions"][0]["pending_inputs"] != 0 {
        assert!(std::time::Instant::now() < end, "they are not taken up");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    host.stop();
    host.verify();
}
