//! Texts of errors that are too long to be read, sent and kept.

/// The longest text of an error in bytes, without the line about what was left out.
const LONGEST: usize = 64 << 10;

/// Leaves out the middle of a text of more than 64 KiB, and says so in a line of its own.
pub(crate) fn excerpt(mut text: String) -> String {
    if text.len() > LONGEST {
        let mut head = LONGEST / 2;
        while !text.is_char_boundary(head) {
            head -= 1;
        }
        let mut tail = text.len() - LONGEST / 2;
        while !text.is_char_boundary(tail) {
            tail += 1;
        }
        let note = format!("\n[{} bytes left out]\n", tail - head);
        text.replace_range(head..tail, &note);
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_long_error_is_left_out() {
        let whole = "x".repeat(LONGEST);
        assert_eq!(excerpt(whole.clone()), whole);
        // Each letter takes two bytes, and the first half ends within one.
        let text = format!("a{}{}z", "ä".repeat(LONGEST), "ö".repeat(LONGEST));
        let short = excerpt(text.clone());
        assert!(short.len() <= LONGEST + 40, "{}", short.len());
        let (head, rest) = short.split_once("\n[").unwrap();
        let (count, tail) = rest.split_once(" bytes left out]\n").unwrap();
        assert!(text.starts_with(head) && text.ends_with(tail), "both ends are whole");
        assert_eq!(head.len() + count.parse::<usize>().unwrap() + tail.len(), text.len());
    }
}
