//! A Varlink client that knows nothing of klbr can read the interface and call it.
//!
//! Uses the `varlink` package of PyPI that `make venv` installs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use klbr::operator::listener::Listener;
use klbr::operator::message::Call;
use klbr::operator::server::{Admission, CallEnd, Replies, Server, Service};
use klbr::operator::{DESCRIPTION, Fault, INTERFACE};
use serde_json::json;
use std::sync::Arc;

struct Puppet;

impl Service for Puppet {
    const INTERFACE: &'static str = INTERFACE;
    const DESCRIPTION: &'static str = DESCRIPTION;

    async fn call(&self, mut call: Call, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let event = |text: &str| {
            json!({"event": {"event_id": 1, "session_id": "root", "kind": "operator.input",
                   "source": "operator", "at": null, "at_ms": 0, "payload": {"text": text}}})
        };
        match call.method.as_str() {
            "Send" => {
                let text: String = call.parameters.required("text")?;
                replies.last(&event(&text)).await
            }
            "Follow" => {
                replies.more(&event("one")).await?;
                replies.last(&event("two")).await
            }
            "Reset" => Err(Fault::UnknownSession("there is no session `x`".to_owned()).into()),
            method => Err(Fault::MethodNotFound(method.to_owned()).into()),
        }
    }
}

const CLIENT: &str = r#"
import sys, varlink
with varlink.Client.new_with_address("unix:" + sys.argv[1]) as client:
    service = client.get_interfaces()
    assert "org.klbr.Operator" in service, service
    with client.open("org.klbr.Operator") as klbr:
        assert klbr.Send("root", "hello")["event"]["payload"]["text"] == "hello"
        texts = [r["event"]["payload"]["text"] for r in klbr.Follow(None, None, True, None, _more=True)]
        assert texts == ["one", "two"], texts
        try:
            klbr.Reset("x")
        except varlink.VarlinkError as error:
            assert error.error() == "org.klbr.Operator.UnknownSession", error
            assert error.parameters()["remedy"], error
        else:
            raise AssertionError("no error")
print("fine")
"#;

#[tokio::test]
async fn the_python_package_calls_follows_and_gets_typed_errors() {
    let Some(python) = harness::venv_python("varlink") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("klbr.sock");
    let admission =
        Admission { uid: Some(rustix::process::geteuid().as_raw()), inside_worker: Arc::new(|_| false) };
    let server = Server::with(Listener::bind(&path).unwrap(), Puppet, admission);
    let output =
        tokio::process::Command::new(&python).args(["-c", CLIENT]).arg(&path).output().await.unwrap();
    server.stop().await;

    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "fine\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
