//! The instruction text at the head of every request, and its parts.

use crate::event::HeaderSource;
use crate::id::Digest;

/// The shipped text: how this runtime works.
const CONTRACT: &str = include_str!("contract.md");

/// An instruction text with its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The parts, in order.
    pub sources: Vec<HeaderSource>,
    /// The parts, joined by an empty line.
    pub text: String,
    /// Digest of the text.
    pub digest: Digest,
}

impl Header {
    /// The text of the shipped contract and, where there is one, the workspace's own instructions.
    pub fn compose(workspace: Option<&str>) -> Self {
        let mut sources = vec![source("contract", CONTRACT)];
        sources.extend(workspace.map(|text| source("workspace", text)));
        let texts: Vec<&str> = sources.iter().map(|source| source.text.trim_end()).collect();
        let text = texts.join("\n\n");
        Self { digest: Digest::of(text.as_bytes()), text, sources }
    }
}

fn source(name: &str, text: &str) -> HeaderSource {
    HeaderSource { name: name.to_owned(), digest: Digest::of(text.as_bytes()), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_come_in_their_order_and_an_absent_one_leaves_no_trace() {
        let with = Header::compose(Some("Be brief.\n"));
        let without = Header::compose(None);

        let names: Vec<_> = with.sources.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["contract", "workspace"]);
        assert_eq!(with.text, format!("{}\n\nBe brief.", without.text));
        assert_eq!(with.digest, Digest::of(with.text.as_bytes()));
    }
}
