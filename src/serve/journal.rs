//! Where the host's own log goes: the journal, with its fields, where standard error is the journal;
//! else standard error as lines.

use std::os::fd::AsFd as _;

use tracing_subscriber::fmt::format;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Which lines there are (klbr(1)).
const FILTER_VARIABLE: &str = "KLBR_LOG";
/// In front of our fields, so that they stand together in the journal; lines do without.
const FIELD_PREFIX: &str = "klbr_";
/// What only a journal can use.
const JOURNAL_ONLY: &str = "message_id";

/// Starts the host's own log. `KLBR_LOG` chooses what is in it, such as `debug` or
/// `warn,klbr::route=trace`.
pub fn start(colours: bool) {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::INFO.into())
        .with_env_var(FILTER_VARIABLE)
        .from_env_lossy();
    let registry = tracing_subscriber::registry().with(filter);
    let journal = is_journal().then(tracing_journald::layer);
    // A program that embeds this one may have a log of its own already.
    let _ = match journal {
        Some(Ok(journal)) => registry.with(journal.with_field_prefix(None)).try_init(),
        Some(Err(_)) | None => {
            let fields = format::debug_fn(|writer, field, value| match field.name() {
                JOURNAL_ONLY => Ok(()),
                "message" => write!(writer, "{value:?}"),
                name => write!(writer, "{}={value:?}", name.strip_prefix(FIELD_PREFIX).unwrap_or(name)),
            });
            let lines = tracing_subscriber::fmt::layer()
                .fmt_fields(tracing_subscriber::field::MakeExt::delimited(fields, " "))
                .with_writer(std::io::stderr)
                .with_ansi(colours);
            registry.with(lines).try_init()
        }
    };
}

/// Whether standard error is the journal's stream (systemd.exec(5), `$JOURNAL_STREAM`).
fn is_journal() -> bool {
    let Ok(stated) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(std::io::stderr().as_fd())
        .is_ok_and(|stream| stated == format!("{}:{}", stream.st_dev, stream.st_ino))
}
