//! Separates Rust code from comments and literals, well enough for word searches.

/// A Rust file in three layers with the same lines; each layer has blanks where the others have characters.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// What the compiler acts on, without literals.
    pub(crate) code: String,
    /// Comments and doc comments.
    pub(crate) comments: String,
    /// String and character literals.
    pub(crate) literals: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Source {
    pub(crate) fn parse(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let mut source = Self::default();
        let mut rest = chars.as_slice();
        while !rest.is_empty() {
            let (kind, length) = token(rest);
            let (token, after) = rest.split_at(length.clamp(1, rest.len()));
            source.append(kind, token);
            rest = after;
        }
        source
    }

    fn append(&mut self, kind: Kind, token: &[char]) {
        for &c in token {
            for (layer, text) in [
                (Kind::Code, &mut self.code),
                (Kind::Comment, &mut self.comments),
                (Kind::Literal, &mut self.literals),
            ] {
                text.push(if layer == kind || c == '\n' { c } else { ' ' });
            }
        }
    }

    /// Returns the line (from 1) at which the file's own module of unit tests begins, at the end of the file.
    pub(crate) fn tests_begin(&self) -> usize {
        let lines: Vec<_> = self.code.lines().map(str::trim).collect();
        let begins = |pair: &[&str]| matches!(pair, ["#[cfg(test)]", next] if next.starts_with("mod "));
        lines.windows(2).position(begins).map_or(usize::MAX, |index| index + 1)
    }
}

/// Returns the kind and length of the token at the beginning of the text.
fn token(rest: &[char]) -> (Kind, usize) {
    match rest {
        ['/', '/', ..] => (Kind::Comment, rest.iter().take_while(|c| **c != '\n').count()),
        ['/', '*', ..] => (Kind::Comment, block_comment(rest)),
        ['"', ..] => (Kind::Literal, quoted(rest, '"')),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => (Kind::Literal, quoted(rest, '\'')),
        [c, ..] if is_word(*c) => {
            let word = rest.iter().take_while(|c| is_word(**c)).count();
            let (prefix, after) = rest.split_at(word);
            if matches!(prefix, ['r'] | ['b' | 'c', 'r'])
                && let Some(raw) = raw_string(after)
            {
                return (Kind::Literal, word + raw);
            }
            (Kind::Code, word)
        }
        _ => (Kind::Code, 1),
    }
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of a block comment, which may contain others.
fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut length, mut rest) = (0_usize, 0, rest);
    while let Some((_, next)) = rest.split_first() {
        let (step, after) = match rest {
            ['/', '*', after @ ..] => (1, after),
            ['*', '/', after @ ..] => (-1, after),
            _ => (0, next),
        };
        length += if step == 0 { 1 } else { 2 };
        depth = depth.saturating_add_signed(step);
        rest = after;
        if depth == 0 {
            break;
        }
    }
    length
}

/// Returns the length of a literal between two quotes.
fn quoted(rest: &[char], quote: char) -> usize {
    let mut escaped = false;
    for (index, &c) in rest.iter().enumerate().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return index + 1;
        }
    }
    rest.len()
}

/// Returns the length of a raw string's part after its `r`, if it is one.
fn raw_string(rest: &[char]) -> Option<usize> {
    let hashes = rest.iter().take_while(|c| **c == '#').count();
    if rest.get(hashes) != Some(&'"') {
        return None;
    }
    let mut end = vec!['"'];
    end.resize(hashes + 1, '#');
    let body = rest.get(hashes + 1..)?;
    let length = body.windows(end.len()).position(|window| window == end).unwrap_or(body.len());
    Some(hashes + 1 + length + end.len())
}

/// Returns whether the text contains this word or phrase, not as part of a longer word.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let bounded = |inner: Option<char>, outer: Option<char>| {
        !(inner.is_some_and(is_word) && outer.is_some_and(is_word))
    };
    text.match_indices(word).any(|(at, found)| {
        let (before, after) = (text.get(..at).unwrap_or(""), text.get(at + found.len()..).unwrap_or(""));
        bounded(word.chars().next(), before.chars().next_back())
            && bounded(word.chars().next_back(), after.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_character_lands_in_its_own_layer() {
        let source =
            Source::parse("let a = \"text // not\"; // said \"so\"\n/* one /* two */ still */ fn b() {}\n");
        assert_eq!(words(&source.code), "let a = ; fn b() {}");
        assert_eq!(words(&source.literals), "\"text // not\"");
        assert_eq!(words(&source.comments), "// said \"so\" /* one /* two */ still */");
    }

    #[test]
    fn layers_keep_the_lines() {
        let text = "//! Top.\nconst A: &str = \"one\ntwo\";\nfn é() {}\n";
        let source = Source::parse(text);
        for layer in [&source.code, &source.comments, &source.literals] {
            assert_eq!(layer.lines().count(), 4);
        }
        assert_eq!(source.code.lines().nth(3), Some("fn é() {}"));
    }

    #[test]
    fn raw_strings_escapes_and_lifetimes_do_not_confuse() {
        for (text, code) in [
            ("r#\"a \"quoted\" b\"# + x", "+ x"),
            ("br\"\\\" + x", "+ x"),
            ("\"a\\\"b\" + x", "+ x"),
            ("'\"' + x", "+ x"),
            ("'\\'' + x", "+ x"),
            ("fn f<'a>(s: &'a str) {}", "fn f<'a>(s: &'a str) {}"),
            ("r#type + for_r", "r#type + for_r"),
            ("b'x' + x", "b + x"),
        ] {
            assert_eq!(words(&Source::parse(text).code), code, "{text}");
        }
    }

    #[test]
    fn an_unfinished_literal_or_comment_runs_to_the_end() {
        for text in ["\"open", "/* open", "r#\"open\"", "'\\"] {
            assert_eq!(words(&Source::parse(text).code), "", "{text}");
        }
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("an unsafe block", "unsafe"));
        assert!(!has_word("forbid(unsafe_code)", "unsafe"));
        assert!(has_word("x.todo!()", "todo!"));
        assert!(!has_word("my_todo!()", "todo!"));
    }

    #[test]
    fn unit_tests_begin_at_their_attribute() {
        assert_eq!(Source::parse("//! A.\nfn a() {}\n#[cfg(test)]\nmod tests {}\n").tests_begin(), 3);
        for text in ["//! #[cfg(test)]\nmod a;\n", "//! A.\n#[cfg(test)]\nuse b::C;\nfn d() {}\n"] {
            assert_eq!(Source::parse(text).tests_begin(), usize::MAX, "{text}");
        }
    }
}
