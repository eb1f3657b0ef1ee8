//! A containment that can be closed: a host on its way down starts nothing any more.
//!
//! Not a nicety. A worker's unit is ordered before the host's, so that it ends after it; its start would wait
//! for the end of the host's stop, and the host for the start.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Boxed, Contained, Containment, ContainmentError, Launch};

/// See the module.
pub struct Closing {
    inner: Arc<dyn Containment>,
    closed: watch::Sender<bool>,
}

impl Closing {
    /// Open until [`Closing::close`].
    pub fn new(inner: Arc<dyn Containment>) -> Self {
        Self { inner, closed: watch::Sender::new(false) }
    }

    /// Gives up starts that are under way, and all that come.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }
}

impl Containment for Closing {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn unenforced(&self) -> Vec<String> {
        self.inner.unenforced()
    }

    fn hands_over(&self) -> bool {
        self.inner.hands_over()
    }

    fn start(&self, launch: Launch) -> Boxed<'_, Result<Contained, ContainmentError>> {
        Box::pin(async move {
            let unit = launch.unit.clone();
            let mut closed = self.closed.subscribe();
            // What was begun meanwhile has lost its lifeline with the future, and ends by itself.
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => Err(ContainmentError::Closed { unit }),
                started = self.inner.start(launch) => started,
            }
        })
    }

    fn stop_leftovers(&self) -> Boxed<'_, Result<usize, ContainmentError>> {
        self.inner.stop_leftovers()
    }

    fn stop_timeout(&self) -> Boxed<'_, Option<Duration>> {
        self.inner.stop_timeout()
    }

    fn holds(&self, pid: u32) -> bool {
        self.inner.holds(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whose starts never end.
    struct Stuck;

    impl Containment for Stuck {
        fn name(&self) -> &'static str {
            "stuck"
        }
        fn unenforced(&self) -> Vec<String> {
            vec![]
        }
        fn start(&self, _: Launch) -> Boxed<'_, Result<Contained, ContainmentError>> {
            Box::pin(std::future::pending())
        }
        fn stop_leftovers(&self) -> Boxed<'_, Result<usize, ContainmentError>> {
            Box::pin(std::future::ready(Ok(0)))
        }
        fn holds(&self, _: u32) -> bool {
            false
        }
    }

    fn launch() -> Launch {
        Launch {
            unit: "klbr-gen-1-00000000".to_owned(),
            argv: vec![],
            env: vec![],
            cwd: "/".into(),
            read_only: vec![],
            read_write: vec![],
            control: None,
        }
    }

    #[tokio::test]
    async fn a_start_under_way_is_given_up_and_the_next_not_begun() {
        let containment = Arc::new(Closing::new(Arc::new(Stuck)));
        let under_way = Arc::clone(&containment);
        let under_way = tokio::spawn(async move { under_way.start(launch()).await.map(drop) });
        tokio::task::yield_now().await;
        assert!(!under_way.is_finished());
        containment.close();
        assert!(matches!(under_way.await.unwrap(), Err(ContainmentError::Closed { .. })));
        let next = containment.start(launch()).await.map(drop);
        assert!(matches!(next, Err(ContainmentError::Closed { .. })));
    }
}
