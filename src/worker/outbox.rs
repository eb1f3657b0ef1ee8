//! What a worker is sent: written at once where its socket takes it, kept where it does not.

use std::collections::VecDeque;

use tokio::net::unix::OwnedWriteHalf;

/// Frames on their way to one worker. While any is unsent, nothing more is read from the worker
/// (`Link::next`): what a worker can make the host keep is bounded by what it may ask for in one cell.
pub(super) struct Outbox {
    socket: OwnedWriteHalf,
    unsent: VecDeque<Vec<u8>>,
    /// Bytes of the first frame that are sent already.
    sent: usize,
}

impl Outbox {
    pub(super) fn new(socket: OwnedWriteHalf) -> Self {
        Self { socket, unsent: VecDeque::new(), sent: 0 }
    }

    /// Sends what the socket takes now, and keeps the rest.
    pub(super) fn push(&mut self, frame: Vec<u8>) {
        self.unsent.push_back(frame);
        self.write();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends more once the socket takes it. Loses nothing when it is dropped and asked again.
    pub(super) async fn send_more(&mut self) {
        match self.socket.writable().await {
            Ok(()) => self.write(),
            Err(_) => self.unsent.clear(),
        }
    }

    fn write(&mut self) {
        while let Some(frame) = self.unsent.front() {
            match self.socket.try_write(&frame[self.sent..]) {
                Ok(count) if self.sent + count < frame.len() => self.sent += count,
                Ok(_) => {
                    self.sent = 0;
                    self.unsent.pop_front();
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // A connection that is closed: the reader says so, with what came before.
                Err(_) => return self.unsent.clear(),
            }
        }
    }
}
