//! The ends of a worker's raw streams: read all the time, kept to a fixed size.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinHandle;

use crate::limits::{DRAIN_MS_MAX, TAIL_BYTES_MAX};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 16 * 1024;

/// The end of one stream.
pub(super) struct Tail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    reader: JoinHandle<()>,
}

impl Tail {
    /// Reads a stream from here on.
    pub(super) fn of(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let kept = Arc::<Mutex<VecDeque<u8>>>::default();
        let reader = tokio::spawn(drain(stream, Arc::clone(&kept)));
        Self { kept, reader }
    }

    /// What is kept, after the process has ended: what is still in the pipe is read for a bounded
    /// time, whoever holds its other end.
    pub(super) async fn finish(mut self) -> String {
        let drained = tokio::time::timeout(Duration::from_millis(DRAIN_MS_MAX), &mut self.reader).await;
        if drained.is_err() {
            self.reader.abort();
        }
        let kept: Vec<u8> = lock(&self.kept).iter().copied().collect();
        text(&kept)
    }
}

/// The bytes as text: where the cut went through a character, that character is left out.
fn text(bytes: &[u8]) -> String {
    let cut = bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
    String::from_utf8_lossy(&bytes[cut..]).into_owned()
}

fn lock(kept: &Mutex<VecDeque<u8>>) -> std::sync::MutexGuard<'_, VecDeque<u8>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn drain(mut stream: impl AsyncRead + Unpin, kept: Arc<Mutex<VecDeque<u8>>>) {
    let mut piece = vec![0; PIECE_BYTES];
    // An error is an end as well.
    while let Ok(count @ 1..) = stream.read(&mut piece).await {
        let mut kept = lock(&kept);
        kept.extend(&piece[..count]);
        let over = kept.len().saturating_sub(TAIL_BYTES_MAX);
        kept.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_long_stream_is_kept_and_cut_between_characters() {
        let written = format!("{}end", "é".repeat(TAIL_BYTES_MAX));
        let tail = Tail::of(std::io::Cursor::new(written.clone().into_bytes())).finish().await;

        assert!(written.ends_with(&tail));
        assert!((TAIL_BYTES_MAX - 4..=TAIL_BYTES_MAX).contains(&tail.len()), "{}", tail.len());
    }

    #[tokio::test]
    async fn a_stream_that_never_ends_is_left_after_a_while() {
        let (mut write, read) = tokio::io::duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut write, b"said \xff").await.unwrap();
        let tail = Tail::of(read).finish().await;

        assert_eq!(tail, "said \u{fffd}");
    }
}
