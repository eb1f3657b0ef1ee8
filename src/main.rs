//! `klbr`: argv to exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|verb| verb == "contain") {
        return klbr::containment::shim::run(&arguments[2..]);
    }
    ExitCode::from(2)
}
