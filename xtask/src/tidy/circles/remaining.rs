//! The circles of imports that remain. The list only shrinks.

/// A circle that was there when circles were forbidden.
#[derive(Debug)]
pub(super) struct Remaining {
    pub(super) name: &'static str,
    folder: &'static str,
    /// From the folder, without `.rs`, with blanks between them. With a star at its end it is all whose names begin so.
    files: &'static str,
}

impl Remaining {
    #[cfg(test)]
    pub(super) const fn new(name: &'static str, folder: &'static str, files: &'static str) -> Self {
        Self { name, folder, files }
    }

    /// Whether it is this circle: of all these files, and of no others.
    pub(super) fn is(&self, circle: &[String]) -> bool {
        let entries = || self.files.split_whitespace();
        circle.iter().all(|file| entries().any(|entry| self.covers(entry, file)))
            && entries().all(|entry| circle.iter().any(|file| self.covers(entry, file)))
    }

    fn covers(&self, entry: &str, file: &str) -> bool {
        let file =
            file.strip_prefix(self.folder).and_then(|file| file.strip_prefix('/')?.strip_suffix(".rs"));
        file.is_some_and(|file| match entry.strip_suffix('*') {
            Some(start) => file.starts_with(start),
            None => file == entry,
        })
    }
}

pub(super) const REMAINING: &[Remaining] = &[];
