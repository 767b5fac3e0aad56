//! Text that fits a width in characters.

use crate::model::format::{last, place};

/// Cuts or fills text to a width in characters.
pub(super) fn fit(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return format!("{text:<width$}");
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 { String::new() } else { format!("{kept}~") }
}

/// Cuts a path of modules from its beginning, where it says least.
pub(super) fn fit_path(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width || width == 0 {
        return fit(text, width);
    }
    let kept: String = text.chars().skip(length - width + 1).collect();
    format!("~{kept}")
}

/// Cuts the name of a function. That of a closure keeps its file and line for longest.
pub(super) fn fit_function(function: &str, width: usize) -> String {
    let Some(place) = place(function) else { return fit_path(function, width) };
    let shorter = [function, place].into_iter().find(|text| text.chars().count() <= width);
    fit_path(shorter.unwrap_or(last(function)), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_keeps_its_file_and_line() {
        let closure = "simulate::main::{closure@src/bin/main.rs:12}";
        let shown = |width| fit_function(closure, width);
        assert_eq!(shown(44), closure);
        assert_eq!(shown(43).trim_end(), "src/bin/main.rs:12");
        assert_eq!((shown(17).trim_end(), &*shown(10)), ("main.rs:12", "main.rs:12"));
        assert_eq!(shown(8), "~n.rs:12");
        assert_eq!(
            [last(closure), last("simulate::step"), last("step")],
            ["main.rs:12", "step", "step"]
        );
    }

    #[test]
    fn a_path_is_cut_from_its_beginning() {
        assert_eq!([fit_path("simulate::step", 8), fit_path("step", 6)], ["~e::step", "step  "]);
        assert_eq!([fit("worker-12", 5), fit("worker-12", 0)], ["work~", ""]);
    }
}
