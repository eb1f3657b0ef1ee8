//! The methods of `org.klbr.Operator`, each from its parameters to its replies.

use serde::Serialize;
use serde_json::json;

use super::event_object::EventObject;
use super::fault::Fault;
use super::message::{Call, Parameters};
use super::server::{CallEnd, Replies, Service};
use crate::cell::OutputRecord;
use crate::clock;
use crate::event::{CellStatus, Event};
use crate::id::{EffectId, EventId, SessionId};
use crate::limits::{OPERATOR_FETCH_EVENTS, PAGE_EVENTS_MAX};
use crate::session::{Host, Refusal, When};
use crate::store::{EventFilter, StoreError};

/// What passes between an operator and a session: the kinds that `Follow` shows unless asked for
/// others.
pub const LANE: [&str; 5] =
    ["operator.input", "delivery.sent", "delivery.held", "delivery.discarded", "turn.ended"];

/// The operator's interface to one host.
#[derive(Clone)]
pub struct Operator {
    host: Host,
}

impl Operator {
    /// An interface to this host.
    pub fn new(host: Host) -> Self {
        Self { host }
    }
}

impl Service for Operator {
    const INTERFACE: &'static str = super::INTERFACE;
    const DESCRIPTION: &'static str = super::DESCRIPTION;

    async fn call(&self, call: Call, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let parameters = call.parameters;
        match call.method.as_str() {
            "Send" => self.send(parameters, replies).await,
            "Follow" if call.more => self.follow(parameters, replies).await,
            "Follow" => Err(Fault::ExpectedMore.into()),
            "Log" if call.more => self.log(parameters, replies).await,
            "Log" => self.log_page(parameters, replies).await,
            "Exec" => self.exec(parameters, replies).await,
            "Interrupt" => self.interrupt(parameters, replies).await,
            "Reset" => self.reset(parameters, replies).await,
            "Held" => self.held(parameters, replies).await,
            "Release" => self.release(parameters, replies).await,
            "Discard" => self.discard(parameters, replies).await,
            "Status" => self.status(parameters, replies).await,
            "Reload" => self.reload(parameters, replies).await,
            method => Err(Fault::MethodNotFound(format!("{}.{method}", Self::INTERFACE)).into()),
        }
    }
}

impl Operator {
    async fn send(&self, mut given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let session: SessionId = given.required("session")?;
        let text: String = given.required("text")?;
        given.finish()?;
        let event = self.host.input(session, text).await.map_err(Fault::from)?;
        replies.last(&json_event(&event)).await
    }

    async fn follow(&self, mut given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let session: Option<SessionId> = given.optional("session")?;
        let since = since(&mut given)?;
        let all: Option<bool> = given.optional("all")?;
        let kinds: Option<Vec<String>> = given.optional("kinds")?;
        given.finish()?;
        let kinds = match (kinds, all) {
            (Some(kinds), _) => kinds,
            (None, Some(true)) => Vec::new(),
            (None, Some(false) | None) => LANE.map(str::to_owned).to_vec(),
        };
        self.known(session.as_ref()).await?;
        let filter = EventFilter { session, kinds };
        let mut head = self.host.store().head();
        let mut since = since.unwrap_or(*head.borrow());
        loop {
            // Marked as seen before the log is read: what is appended after the read wakes us.
            head.borrow_and_update();
            loop {
                let page = self.fetch(since, &filter, OPERATOR_FETCH_EVENTS).await?;
                for event in &page.events {
                    replies.more(&json_event(event)).await?;
                }
                since = page.through;
                if page.events.len() < OPERATOR_FETCH_EVENTS {
                    break;
                }
            }
            tokio::select! {
                changed = head.changed() => changed.map_err(|_| Fault::Stopping)?,
                () = replies.stopping() => return Err(Fault::Stopping.into()),
                () = replies.gone() => return Err(CallEnd::Gone),
            }
        }
    }

    /// Everything up to the present, a page at a time.
    async fn log(&self, given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let wanted = self.wanted(given, usize::MAX).await?;
        let mut left = wanted.limit.unwrap_or(usize::MAX);
        let end = *self.host.store().head().borrow();
        let mut since = wanted.since;
        while since < end && left > 0 {
            let size = left.min(OPERATOR_FETCH_EVENTS);
            let page = self.fetch(since, &wanted.filter, size).await?;
            since = page.through;
            left -= page.events.len();
            if !page.events.is_empty() {
                replies.more(&json_events(&page.events)).await?;
            }
        }
        replies.last(&json_events(&[])).await
    }

    async fn log_page(&self, given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let wanted = self.wanted(given, PAGE_EVENTS_MAX).await?;
        let limit = wanted.limit.unwrap_or(PAGE_EVENTS_MAX).min(PAGE_EVENTS_MAX);
        let page = self.fetch(wanted.since, &wanted.filter, limit).await?;
        replies.last(&json_events(&page.events)).await
    }

    async fn exec(&self, mut given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        #[derive(Serialize)]
        struct Outcome {
            event_id: i64,
            execution_id: String,
            status: CellStatus,
            output: Vec<OutputRecord>,
            truncated_bytes: u64,
            error: Option<String>,
        }
        let session: SessionId = given.required("session")?;
        let code: String = given.required("code")?;
        let when = match given.optional("now")? {
            Some(true) => When::Now,
            Some(false) | None => When::Behind,
        };
        given.finish()?;
        // Leaving drops the wish: a cell that still waits is not started for nobody.
        let ended = tokio::select! {
            ended = self.host.exec(session, code, when) => ended.map_err(Fault::from)?,
            () = replies.stopping() => return Err(Fault::Stopping.into()),
            () = replies.gone() => return Err(CallEnd::Gone),
        };
        let outcome = Outcome {
            event_id: ended.event_id.0,
            execution_id: ended.execution_id.into(),
            status: ended.status,
            output: ended.output,
            truncated_bytes: ended.truncated_bytes,
            error: ended.error,
        };
        replies.last(&Named { outcome }).await
    }

    async fn interrupt(&self, mut given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let session: SessionId = given.required("session")?;
        given.finish()?;
        let met = self.host.interrupt(session).await.map_err(Fault::from)?;
        let interrupted = json!({"execution_id": met.execution_id, "turn": met.turn});
        replies.last(&json!({"interrupted": interrupted})).await
    }

    async fn reset(&self, mut given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let session: SessionId = given.required("session")?;
        given.finish()?;
        let outcome = tokio::select! {
            outcome = self.host.reset(session) => outcome.map_err(Fault::from)?,
            () = replies.stopping() => return Err(Fault::Stopping.into()),
        };
        replies.last(&json!({"generation": outcome.generation})).await
    }

    async fn held(&self, mut given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let session: Option<SessionId> = given.optional("session")?;
        given.finish()?;
        self.known(session.as_ref()).await?;
        let rows = self.host.store().read(move |s| s.held(session.as_ref())).await.map_err(Fault::from)?;
        let held: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "effect_id": row.effect_id, "session_id": row.session, "event_id": row.event,
                    "text": row.text, "reason": row.reason,
                    "at": clock::rfc3339(row.at_ms), "at_ms": row.at_ms,
                })
            })
            .collect();
        replies.last(&json!({"held": held})).await
    }

    async fn release(&self, mut given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let effect: EffectId = given.required("effect_id")?;
        given.finish()?;
        let event = self.host.release(effect).await.map_err(Fault::from)?;
        replies.last(&json_event(&event)).await
    }

    async fn discard(&self, mut given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        let effect: EffectId = given.required("effect_id")?;
        given.finish()?;
        let event = self.host.discard(effect).await.map_err(Fault::from)?;
        replies.last(&json_event(&event)).await
    }

    async fn reload(&self, given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        given.finish()?;
        let reloaded = self.host.ask_for_reload().await.map_err(Fault::from)?;
        let (in_force, need_restart) = (reloaded.in_force, reloaded.need_restart);
        replies.last(&json!({"reloaded": {"in_force": in_force, "need_restart": need_restart}})).await
    }

    async fn status(&self, given: Parameters, replies: &mut Replies<'_>) -> Result<(), CallEnd> {
        #[derive(Serialize)]
        struct Versioned<T> {
            interface_version: u32,
            #[serde(flatten)]
            status: T,
        }
        given.finish()?;
        let status = self.host.status().await.map_err(Fault::from)?;
        let status = Versioned { interface_version: super::INTERFACE_VERSION, status };
        replies.last(&json!({"status": status})).await
    }

    /// What is asked for by a caller who is shown at most `most` events.
    async fn wanted(&self, mut given: Parameters, most: usize) -> Result<Wanted, Fault> {
        let session: Option<SessionId> = given.optional("session")?;
        let kinds: Option<Vec<String>> = given.optional("kinds")?;
        let since = since(&mut given)?;
        let limit: Option<usize> = given.optional("limit")?;
        given.finish()?;
        self.known(session.as_ref()).await?;
        let filter = EventFilter { session, kinds: kinds.unwrap_or_default() };
        let since = match (since, limit) {
            (Some(since), _) => since,
            (None, None) => EventId(0),
            (None, Some(limit)) => self.before_newest(&filter, limit.min(most)).await?,
        };
        Ok(Wanted { filter, since, limit })
    }

    /// Where the newest `limit` events begin.
    async fn before_newest(&self, filter: &EventFilter, limit: usize) -> Result<EventId, Fault> {
        let (mut first, mut left) = (None, limit);
        while left > 0 {
            let (filter, size) = (filter.clone(), left.min(PAGE_EVENTS_MAX));
            let before = EventId(first.unwrap_or(i64::MAX));
            let page = self.host.store().read(move |s| s.events_before(before, &filter, size)).await?;
            first = page.iter().map(|event| event.id.0).min().or(first);
            left -= page.len();
            if page.len() < size {
                break;
            }
        }
        Ok(EventId(first.map_or(0, |first| first - 1)))
    }

    async fn known(&self, session: Option<&SessionId>) -> Result<(), Fault> {
        let Some(session) = session.cloned() else { return Ok(()) };
        let name = session.clone();
        let row = self.host.store().read(move |s| s.session(&name)).await?;
        match row {
            Some(_) => Ok(()),
            None => Err(Refusal::UnknownSession(session).into()),
        }
    }

    async fn fetch(&self, since: EventId, filter: &EventFilter, limit: usize) -> Result<Page, Fault> {
        let filter = filter.clone();
        let read = move |s: &crate::store::Snapshot<'_>| {
            let events = s.events_after(since, &filter, limit)?;
            let through = match events.last() {
                Some(last) if events.len() == limit => last.id,
                // A page that is not full has seen everything: the next one starts at the head, not
                // at the last event that the filter let through.
                Some(_) | None => s.head()?.max(since),
            };
            Ok(Page { events, through })
        };
        Ok(self.host.store().read(read).await?)
    }
}

/// What a `Log` is asked for.
struct Wanted {
    filter: EventFilter,
    since: EventId,
    limit: Option<usize>,
}

/// Some events, and up to where the log was read for them.
struct Page {
    events: Vec<Event>,
    through: EventId,
}

/// One reply member with the name of its field.
#[derive(Serialize)]
struct Named<T> {
    outcome: T,
}

#[derive(Serialize)]
struct OneEvent<'a> {
    event: EventObject<'a>,
}

#[derive(Serialize)]
struct Events<'a> {
    events: Vec<EventObject<'a>>,
}

fn json_event(event: &Event) -> OneEvent<'_> {
    OneEvent { event: event.into() }
}

fn json_events(events: &[Event]) -> Events<'_> {
    Events { events: events.iter().map(EventObject::from).collect() }
}

fn since(given: &mut Parameters) -> Result<Option<EventId>, Fault> {
    match given.optional::<i64>("since")? {
        Some(since) if since < 0 => Err(Fault::InvalidParameter("since".to_owned())),
        since => Ok(since.map(EventId)),
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::UnknownSession(_) => Self::UnknownSession(message),
            Refusal::Busy(_) => Self::Busy(message),
            Refusal::Refused(_) => Self::Refused(message),
            Refusal::TooLarge { .. } => Self::TooLarge(message),
            Refusal::NotFound(_) => Self::NotFound(message),
            Refusal::Unusable(_) => Self::Unusable(message),
            Refusal::Stopping => Self::Stopping,
            Refusal::Internal(_) => Self::Internal(message),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Internal(error.to_string())
    }
}
