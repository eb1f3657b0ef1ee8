//! The command line: what was asked for, and the exit status of the answer (klbr(1)).
//!
//! Thin: it speaks to the operator socket, and only `init` and `serve` touch anything else. Must not
//! know the log.

mod doctor;
mod error;
mod exec;
mod held;
mod log;
mod places;
mod reach;
mod reload;
mod send;
mod show;
mod status;
mod verbs;
mod write;

pub use error::CliError;

use clap::Parser as _;
use std::ffi::OsString;

use places::Places;
use verbs::{Cli, Verb};
use write::Output;

/// Done.
const DONE: u8 = 0;
/// The thing asked for failed: a cell raised, a turn failed.
const FAILED: u8 = 1;

/// Does what `arguments` (with the program's name) ask for; the status is 0 or 1, or that of an
/// outcome that speaks for itself.
pub fn run(arguments: Vec<OsString>) -> Result<u8, CliError> {
    let cli = Cli::try_parse_from(arguments)?;
    let places = Places::of(&cli.global)?;
    let mut output = Output::new(cli.global.json);
    let outcome = match cli.verb {
        Verb::Init(asked) => init(&places, &asked, &mut output),
        Verb::Serve(asked) => serve(&places, &asked),
        Verb::Send(asked) => wait_for(send::run(&places, asked, &mut output)),
        Verb::Follow(asked) => wait_for(log::follow(&places, asked, &mut output)),
        Verb::Exec(asked) => wait_for(exec::run(&places, asked, &mut output)),
        Verb::Log(asked) => wait_for(log::log(&places, asked, &mut output)),
        Verb::Status {} => wait_for(status::run(&places, &mut output)),
        Verb::Doctor {} => wait_for(doctor::run(&places, &mut output)),
        Verb::Reload {} => wait_for(reload::run(&places, &mut output)),
        Verb::Interrupt {} => wait_for(held::interrupt(&places, &mut output)),
        Verb::Reset {} => wait_for(held::reset(&places, &mut output)),
        Verb::Held { verb } => wait_for(held::run(&places, verb, &mut output)),
    };
    match outcome {
        // Whoever read our output has seen enough: `klbr log | head` is not an error.
        Err(CliError::OutputClosed) => Ok(DONE),
        outcome => outcome,
    }
}

/// Runs a client on one thread.
fn wait_for(client: impl Future<Output = Result<u8, CliError>>) -> Result<u8, CliError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::Runtime)?;
    runtime.block_on(client)
}

fn serve(places: &Places, asked: &verbs::Serve) -> Result<u8, CliError> {
    crate::serve::log(show::Colours::of(&std::io::stderr()) == show::Colours::Yes);
    crate::serve::run(&crate::serve::ServeOptions {
        config: places.config()?,
        data: places.data()?,
        socket: places.socket(),
        allow_root: asked.allow_root,
    })?;
    Ok(DONE)
}

fn init(places: &Places, asked: &verbs::Init, output: &mut Output) -> Result<u8, CliError> {
    let report = crate::init::init(&crate::init::InitOptions {
        config: places.config()?,
        data: places.data()?,
        workspace: asked.workspace.clone(),
        config_only: asked.config_only,
    })?;
    for step in &report {
        output.object_or(step, |text| {
            text.push_str(&show::safe(&step.to_string()));
        })?;
    }
    Ok(DONE)
}
