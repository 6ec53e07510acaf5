//! Words that may not occur in the project's sources: for what is unsafe, unfinished, not run or unbounded.

use super::file::{File, Finding};
use super::source::{Source, has_word};

const IN_CODE: &[(&str, &str)] = &[
    ("unsafe", "write it in safe Rust"),
    ("todo!", "finish it or leave it out"),
    ("unimplemented!", "finish it or leave it out"),
    ("#[ignore", "a test that is not run proves nothing: run it or delete it"),
    ("unbounded", "give it a named limit"),
    ("unbounded_channel", "use a channel with a named capacity"),
    ("UnboundedSender", "use a channel with a named capacity"),
    ("UnboundedReceiver", "use a channel with a named capacity"),
    ("mpsc::channel()", "the standard library's has no limit: use `sync_channel` with a named capacity"),
];

const IN_COMMENTS: &[(&str, &str)] = &[
    ("FIXME", "mend it now"),
    ("XXX", "mend it now, or say what is meant"),
    ("HACK", "mend it now, or say why it must be so"),
    ("```ignore", "an example that is not compiled goes stale: make it compile, or mark it `text`"),
];

pub(super) fn check(file: &File, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (layer, words) in [(&source.code, IN_CODE), (&source.comments, IN_COMMENTS)] {
        for (number, line) in (1..).zip(layer.lines()) {
            for (word, advice) in words {
                if has_word(line, word) {
                    findings.push(Finding::new(file, number, "word", format!("`{word}`: {advice}")));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let file = sample("a.rs", text);
        check(&file, &Source::parse(&file.text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn forbidden_words_are_found_where_they_count() {
        for text in [
            "unsafe { go() }",
            "todo!()",
            "unimplemented!(\"later\")",
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "let (a, b) = mpsc::unbounded_channel();",
            "let (a, b) = flume::unbounded();",
            "use tokio::sync::mpsc::UnboundedSender;",
            "let (a, b) = std::sync::mpsc::channel();",
            "// FIXME: wrong",
            "/* XXX */",
            "/// HACK",
            "/// ```ignore",
        ] {
            assert_eq!(lines(&format!("//! Top.\n{text}\n")), [2], "{text}");
        }
    }

    #[test]
    fn the_same_words_elsewhere_are_fine() {
        for text in [
            "// nothing unsafe, no todo!, nothing unbounded",
            "let word = \"unsafe todo! FIXME\";",
            "#![forbid(unsafe_code)]",
            "let (a, b) = mpsc::channel(8);",
            "let (a, b) = oneshot::channel();",
            "let HACKS = 1;",
        ] {
            assert_eq!(lines(text), [] as [usize; 0], "{text}");
        }
    }
}
