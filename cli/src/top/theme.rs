//! Colors and symbols, as far as the terminal has them.

use std::env;

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;

use crate::model::table::Mark;
use crate::model::workers::State;

/// Borders of plain characters.
const ASCII_BORDER: border::Set = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// The abilities of the terminal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Theme {
    pub(crate) color: bool,
    pub(crate) unicode: bool,
}

impl Theme {
    /// Returns the theme for this terminal, from the environment.
    pub(crate) fn of_terminal() -> Theme {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let dumb = set("TERM").is_none_or(|term| term == "dumb");
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let locale = locale.unwrap_or_default().to_lowercase();
        Theme {
            color: !dumb && set("NO_COLOR").is_none(),
            unicode: !dumb && (locale.contains("utf-8") || locale.contains("utf8")),
        }
    }

    pub(crate) fn border(&self) -> border::Set<'static> {
        if self.unicode { border::PLAIN } else { ASCII_BORDER }
    }

    /// Returns the levels of sparklines and bars, lowest first.
    pub(crate) fn levels(&self) -> [char; 9] {
        match self.unicode {
            true => [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
            false => [' ', '.', ':', '-', '=', '+', '*', '#', '@'],
        }
    }

    /// Returns the symbol of a worker.
    pub(crate) fn symbol(&self, state: State) -> char {
        let (unicode, ascii) = match state {
            State::Idle => ('·', '.'),
            State::Short => ('▒', '+'),
            State::Drain => ('↓', 'v'),
            State::Start => ('○', 'o'),
            State::Long => ('█', '#'),
            State::Slow => ('!', '!'),
        };
        if self.unicode { unicode } else { ascii }
    }

    pub(crate) fn state(&self, state: State) -> Style {
        match state {
            State::Idle | State::Drain => self.dim(),
            State::Short => self.good(),
            State::Start => self.colored(Color::Cyan),
            State::Long => self.colored(Color::Yellow),
            State::Slow => self.bad(),
        }
    }

    pub(crate) fn mark(&self, mark: Mark) -> Style {
        match mark {
            Mark::Plain => Style::new(),
            Mark::Faint => self.dim(),
            Mark::Slow | Mark::Bad => self.bad(),
        }
    }

    pub(crate) fn title(&self, focused: bool) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        match (focused, self.color) {
            (true, true) => style.fg(Color::Cyan),
            (true, false) => style.add_modifier(Modifier::REVERSED),
            (false, _) => style,
        }
    }

    pub(crate) fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn bold(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn dim(&self) -> Style {
        if self.color { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }

    pub(crate) fn good(&self) -> Style {
        self.colored(Color::Green)
    }

    pub(crate) fn bad(&self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn colored(&self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    /// Draws the last values that fit into `width` as a line of bars.
    pub(crate) fn spark(&self, values: &[u64], width: usize) -> String {
        let values = &values[values.len().saturating_sub(width)..];
        let most = values.iter().copied().max().unwrap_or(0).max(1);
        let levels = self.levels();
        let level = |value: &u64| {
            // Everything above 0 is seen.
            levels[((*value as f64 / most as f64) * 8.0).ceil() as usize]
        };
        let drawn: String = values.iter().map(level).collect();
        format!("{drawn:>width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_last_values() {
        let theme = Theme { color: false, unicode: true };
        assert_eq!(theme.spark(&[0, 1, 4, 8], 6), "   ▁▄█");
        assert_eq!(theme.spark(&[9, 9, 0, 8], 2), " █");
        assert_eq!(theme.spark(&[], 3), "   ");
        assert_eq!(Theme { unicode: false, ..theme }.spark(&[0, 1, 4, 8], 4), " .=@");
    }
}
