//! Frames: four big-endian bytes of length, then that many bytes.

use crate::limits::FRAME_BYTES_MAX;

const HEAD: usize = 4;

/// Why bytes are not a frame. The stream cannot be used any more: nothing tells where the next
/// frame would start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is zero.
    #[error("a frame of length 0")]
    Empty,
    /// The length is over [`FRAME_BYTES_MAX`].
    #[error("a frame of {0} bytes, the limit is {FRAME_BYTES_MAX}")]
    TooLarge(u64),
    /// The stream ended inside a frame.
    #[error("the stream ended {0} bytes into a frame")]
    Cut(usize),
}

/// Finds frames in a stream of bytes.
///
/// Holds what arrived and nothing more: a length that is announced is not yet allocated.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    taken: usize,
    failed: Option<FrameError>,
}

impl FrameDecoder {
    /// Takes what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next payload; `None` asks for more bytes. After an error it is that error for ever.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end; this one waits for more bytes")]
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let Some((head, rest)) = self.buffer[self.taken..].split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if let Err(error) = check(length) {
            self.failed = Some(error);
            self.buffer = Vec::new();
            self.taken = 0;
            return Err(error);
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let payload = payload.to_vec();
        self.taken += HEAD + length;
        if self.taken == self.buffer.len() {
            self.buffer.clear();
            self.taken = 0;
        }
        Ok(Some(payload))
    }

    /// Whether the stream may end here.
    pub fn finish(&self) -> Result<(), FrameError> {
        match (self.failed, self.buffer.len() - self.taken) {
            (Some(error), _) => Err(error),
            (None, 0) => Ok(()),
            (None, bytes) => Err(FrameError::Cut(bytes)),
        }
    }
}

fn check(length: usize) -> Result<(), FrameError> {
    match length {
        0 => Err(FrameError::Empty),
        1..=FRAME_BYTES_MAX => Ok(()),
        _ => Err(FrameError::TooLarge(length as u64)),
    }
}

/// The frame of a payload.
pub fn encode_frame(payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    check(payload.len())?;
    let length = u32::try_from(payload.len()).map_err(|_| FrameError::TooLarge(payload.len() as u64))?;
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_found_however_the_bytes_arrive() {
        let stream = [encode_frame(b"one").unwrap(), encode_frame(b"two").unwrap()].concat();
        for cut in 0..=stream.len() {
            let mut decoder = FrameDecoder::default();
            let mut found = vec![];
            for piece in [&stream[..cut], &stream[cut..]] {
                decoder.push(piece);
                while let Some(payload) = decoder.next().unwrap() {
                    found.push(payload);
                }
            }

            assert_eq!(found, [b"one".to_vec(), b"two".to_vec()], "cut at {cut}");
            assert_eq!(decoder.finish(), Ok(()));
        }
    }

    #[test]
    fn the_length_has_two_bounds_and_an_error_is_for_ever() {
        assert!(encode_frame(&vec![b' '; FRAME_BYTES_MAX]).is_ok());
        assert_eq!(encode_frame(b""), Err(FrameError::Empty));
        let too_large = FRAME_BYTES_MAX + 1;
        assert_eq!(encode_frame(&vec![b' '; too_large]), Err(FrameError::TooLarge(too_large as u64)));

        let mut decoder = FrameDecoder::default();
        decoder.push(&u32::MAX.to_be_bytes());
        assert_eq!(decoder.next(), Err(FrameError::TooLarge(u64::from(u32::MAX))));
        decoder.push(&encode_frame(b"{}").unwrap());
        assert_eq!(decoder.next(), Err(FrameError::TooLarge(u64::from(u32::MAX))));
        assert!(decoder.buffer.capacity() < 1024);
    }

    #[test]
    fn an_end_inside_a_frame_is_said() {
        let mut decoder = FrameDecoder::default();
        decoder.push(&[0, 0, 0, 9, b'{']);

        assert_eq!((decoder.next(), decoder.finish()), (Ok(None), Err(FrameError::Cut(5))));
    }
}
