//! Server-sent events, decoded by bytes: whatever the pieces are that they arrive in.

use crate::limits::SSE_LINE_BYTES_MAX;

/// A line longer than [`SSE_LINE_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line of the event stream is longer than {SSE_LINE_BYTES_MAX} bytes")]
pub struct LineTooLong;

/// Finds the `data` of events in a stream of bytes.
///
/// Lines end with LF, CR or CRLF; a byte order mark at the start, comments, and fields other than
/// `data` are passed over; several `data` lines of one event are joined by a line end.
#[derive(Debug, Default)]
pub struct SseDecoder {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    /// The last byte was a CR: an LF right behind it is the same line end.
    after_cr: bool,
    started: bool,
}

impl SseDecoder {
    /// Takes what arrived, and gives the data of every event that it completes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, LineTooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\n' | b'\r' => {
                    self.after_cr = *byte == b'\r';
                    events.extend(self.end_line());
                }
                _ => {
                    self.after_cr = false;
                    if self.line.len() >= SSE_LINE_BYTES_MAX {
                        return Err(LineTooLong);
                    }
                    self.line.push(*byte);
                }
            }
        }
        Ok(events)
    }

    /// The data of a last event that no empty line followed.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if !self.line.is_empty() {
            // Its line never ended either.
            if let Some(event) = self.end_line() {
                return Some(event);
            }
        }
        self.data.take()
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !self.started {
            self.started = true;
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.data.take();
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        if field == b"data" {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            events.extend(decoder.push(piece).unwrap());
        }
        events.extend(decoder.finish());
        events.into_iter().map(|event| String::from_utf8(event).unwrap()).collect()
    }

    #[test]
    fn every_line_end_is_a_line_end() {
        for end in ["\n", "\r", "\r\n"] {
            let stream = format!(
                ": hello{end}data: a{end}{end}data:b{end}data: c{end}{end}event: x{end}data: d{end}{end}"
            );

            assert_eq!(decode(&[stream.as_bytes()]), ["a", "b\nc", "d"], "{end:?}");
        }
    }

    #[test]
    fn a_mark_at_the_start_and_a_missing_end_do_no_harm() {
        assert_eq!(decode(&[b"\xef\xbb\xbfdata: a\n\ndata: b"]), ["a", "b"]);
        assert_eq!(decode(&[b"data: a\n"]), ["a"]);
        assert_eq!(decode(&[b"data\n\n"]), [""]);
        assert_eq!(decode(&[b""]), Vec::<String>::new());
    }

    #[test]
    fn a_line_has_a_bound_with_two_sides() {
        let mut decoder = SseDecoder::default();
        decoder.push(&vec![b'x'; SSE_LINE_BYTES_MAX]).unwrap();

        assert_eq!(decoder.push(b"x"), Err(LineTooLong));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(cut in 0usize..64, other in 0usize..64) {
            let stream = "\u{feff}data: é\r\n\r\n: c\rdata: 📁\rdata: b\r\r\ndata: z\n\n".as_bytes();
            let (a, b) = (cut.min(other).min(stream.len()), cut.max(other).min(stream.len()));

            prop_assert_eq!(decode(&[&stream[..a], &stream[a..b], &stream[b..]]), decode(&[stream]));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut decoder = SseDecoder::default();
            let _ = decoder.push(&bytes);
            let _ = decoder.finish();
        }
    }
}
