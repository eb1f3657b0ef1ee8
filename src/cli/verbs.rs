//! What can be asked for.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

use crate::id::{EffectId, SessionId};

const EXIT_STATUS: &str = "\
Exit status: 0 done; 1 what was asked for failed (a cell raised, a turn failed); 2 wrong usage; 3 no \
host could be reached; 4 refused by the host; 5 timed out; 6 the data or the configuration is \
unusable; 130 interrupted.";
const SEND_EXAMPLES: &str = "\
Examples:
  klbr send --wait 'print(6 * 7)'
  klbr send - --wait --json --timeout 600 < question.txt";
const FOLLOW_EXAMPLES: &str = "\
Examples:
  klbr follow --since 0
  klbr follow --kind cell.completed --count 1 --json";
const EXEC_EXAMPLES: &str = "\
Examples:
  klbr exec 'sorted(globals())'
  klbr exec --timeout 10 - < check.py";
const LOG_EXAMPLES: &str = "\
Examples:
  klbr log -n 20
  klbr log --kind model.failed --kind turn.ended --json";

#[derive(Debug, Parser)]
#[command(name = "klbr", version, about = "One long-lived agent, run as a proper system service", after_help = EXIT_STATUS)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) verb: Verb,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Places and form")]
pub(super) struct Global {
    /// The configuration file [default: klbr.toml in $XDG_CONFIG_HOME/klbr]
    #[arg(long, env = "KLBR_CONFIG", global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The data directory [default: $XDG_STATE_HOME/klbr]
    #[arg(long, env = "KLBR_DATA", global = true, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// The operator socket [default: $XDG_RUNTIME_DIR/klbr.sock]
    #[arg(long, env = "KLBR_SOCKET", global = true, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
    /// The session; `root` where one is needed, all where a command only looks
    #[arg(long, global = true, value_name = "ID")]
    pub(super) session: Option<SessionId>,
    /// Print one JSON object a line, and nothing else, on standard output
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Make the data directory, a commented configuration and the first release; safe to repeat
    Init(Init),
    /// Run the host in the foreground, until SIGTERM or SIGINT
    Serve(Serve),
    /// Give a session an input
    #[command(after_help = SEND_EXAMPLES)]
    Send(Send),
    /// Show what passes between operator and agent, as it happens
    #[command(after_help = FOLLOW_EXAMPLES)]
    Follow(Follow),
    /// Run a cell of Python in a session's workbench, without a model
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(Exec),
    /// Show the events of the log, oldest first
    #[command(after_help = LOG_EXAMPLES)]
    Log(Log),
    /// Show what runs and waits, or why nothing does
    Status {},
    /// Look at all that a host needs, and say what to do about what is missing
    Doctor {},
    /// Read the configuration again; a bad one is refused, and the old one stays in force
    Reload {},
    /// Interrupt what the session is doing; its workbench stays
    Interrupt {},
    /// Replace the session's workbench; its namespace is lost
    Reset {},
    /// List the texts that review keeps back, and decide about them
    Held {
        #[command(subcommand)]
        verb: Option<Held>,
    },
}

#[derive(Debug, Args)]
pub(super) struct Init {
    /// The directory that the agent works in [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,
    /// Make the configuration only: for root, where the host runs as another user
    #[arg(long)]
    pub(super) config_only: bool,
}

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Run as root all the same, with few of its capabilities: the agent can then change every file
    #[arg(long, env = "KLBR_ALLOW_ROOT", value_parser = clap::builder::FalseyValueParser::new())]
    pub(super) allow_root: bool,
}

#[derive(Debug, Args)]
pub(super) struct Send {
    /// The input; `-` or nothing reads standard input
    pub(super) text: Option<String>,
    /// Wait for the end of the turn that takes the input up, and print what is delivered
    #[arg(long)]
    pub(super) wait: bool,
    /// Give up waiting after so many seconds, such as 0.5; the turn goes on
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "wait")]
    pub(super) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct Follow {
    /// Begin after this event [default: now]
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i64).range(0..))]
    pub(super) since: Option<i64>,
    /// Every event, not only inputs, deliveries and turn ends
    #[arg(long)]
    pub(super) all: bool,
    /// Only events of this kind, such as cell.completed; may be repeated
    #[arg(long, value_name = "KIND", conflicts_with = "all")]
    pub(super) kind: Vec<String>,
    /// End after so many events
    #[arg(long, value_name = "N")]
    pub(super) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct Exec {
    /// The source; `-` or nothing reads standard input
    pub(super) code: Option<String>,
    /// Refuse to wait behind a running cell
    #[arg(long)]
    pub(super) now: bool,
    /// Interrupt the cell after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(super) struct Log {
    /// Only events of this kind, such as cell.completed; may be repeated
    #[arg(long, value_name = "KIND")]
    pub(super) kind: Vec<String>,
    /// Begin after this event [default: the beginning]
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(i64).range(0..))]
    pub(super) since: Option<i64>,
    /// At most so many events; without --since the newest
    #[arg(long, short = 'n', value_name = "N")]
    pub(super) limit: Option<usize>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Held {
    /// List the held texts
    List {},
    /// Deliver a held text
    Release {
        /// The text's effect, as the list shows it
        id: EffectId,
    },
    /// Throw a held text away
    Discard {
        /// The text's effect, as the list shows it
        id: EffectId,
    },
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if seconds <= 0.0 {
        return Err("must be more than 0 seconds".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_timeout_is_a_positive_number_of_seconds() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "-1", "nan", "inf", "1e300", "soon", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn global_options_are_taken_before_and_after_the_verb() {
        for line in ["klbr --json --session p-1 log", "klbr log --session p-1 --json"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();

            assert!(
                cli.global.json && cli.global.session == Some(SessionId::parse("p-1").unwrap()),
                "{line}"
            );
        }
    }
}
