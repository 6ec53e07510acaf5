//! Reasons of dead letters, normalised so that like ones are equal.

/// Replaces each number in the reason by `#`, so that reasons that differ only in attempts and ids are the
/// same.
pub(crate) fn without_numbers(reason: &str) -> String {
    let mut text = String::with_capacity(reason.len());
    let mut in_number = false;
    for character in reason.chars() {
        let is_digit = character.is_ascii_digit();
        if !is_digit {
            text.push(character);
        } else if !in_number {
            text.push('#');
        }
        in_number = is_digit;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_alone_are_one() {
        assert_eq!(without_numbers("failed in attempt 11: port 80"), "failed in attempt #: port #");
        assert_eq!(without_numbers(""), "");
    }
}
