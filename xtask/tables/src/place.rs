//! Puts generated text into its place in a document.

/// Replaces the text between `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
pub(crate) fn between_marks(document: &str, name: &str, printed: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    let parts = document.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let Some((before, after)) = parts else {
        return Err(format!("the lines {begin} and {end} must stand in it, in this order"));
    };
    if printed.trim().is_empty() {
        return Err(format!("nothing was printed for {name}"));
    }
    Ok(format!("{before}{begin}\n{}\n{end}{after}", printed.trim()))
}

/// Replaces the whole document.
#[allow(clippy::unnecessary_wraps, reason = "it is one of several ways to place a text")]
pub(crate) fn whole(_document: &str, _name: &str, printed: &str) -> Result<String, String> {
    Ok(printed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let old = "# Title\n<!-- t:begin -->\nold\n<!-- t:end -->\nrest\n";
        let new = between_marks(old, "t", "| new |\n").unwrap();
        assert_eq!(new, "# Title\n<!-- t:begin -->\n| new |\n<!-- t:end -->\nrest\n");
        assert_eq!(between_marks(&new, "t", "| new |\n").unwrap(), new, "writing again changes nothing");
    }

    #[test]
    fn missing_marks_and_an_empty_table_are_errors() {
        assert!(between_marks("no marks", "t", "new").is_err());
        assert!(between_marks("<!-- t:end --><!-- t:begin -->", "t", "new").is_err());
        assert!(between_marks("<!-- t:begin --><!-- t:end -->", "t", " \n").is_err());
    }
}
