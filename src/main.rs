//! `klbr`: argv in, exit status out.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // The shim lives as long as a worker does: it gets no parser and no runtime.
    if arguments.get(1).is_some_and(|verb| verb == "contain") {
        return klbr::containment::shim::run(&arguments[2..]);
    }
    // Inside a worker's sandbox there is little to read a command line with.
    if arguments.get(1).is_some_and(|verb| verb == "probe") {
        return klbr::containment::probe::run(&arguments[2..]);
    }
    match klbr::cli::run(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            error.print();
            ExitCode::from(error.exit_status())
        }
    }
}
