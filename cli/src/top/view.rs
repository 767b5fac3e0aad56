//! Draws the screen.

mod columns;
mod panes;
mod process;
mod sessions;
mod table;
mod text;
mod workers;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use self::text::fit;
use super::app::{App, Pane, Screen};
use crate::model::table::{Mark, Order};
use crate::model::{Model, is_service};

/// The smallest terminal on which the panes are readable.
const SMALLEST: (u16, u16) = (60, 16);
/// The height of a session's panes with a line of trends' bars and one row at least in each pane.
const COMPLETE: u16 = 14;
/// The height of each pane of details from which all are shown at once.
const TALL: u16 = 7;

/// The width of the column of keys.
const HELP_KEYS: usize = 17;
const HELP: &[(&str, &str)] = &[
    ("arrows, h j k l", "move; in a grid, in all directions"),
    ("Tab, Shift-Tab", "the next pane, the one before"),
    ("Enter", "open a session, a pool, a worker"),
    ("Esc", "back; drops a filter"),
    ("s", "the stacks of the worker's threads"),
    ("/", "show only what contains a text"),
    ("o", "sort by name, time, amount, failures"),
    ("p", "pause, and go on"),
    ("q, Ctrl-C", "leave"),
];

pub(crate) fn draw(frame: &mut Frame, app: &mut App) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        return too_small(frame, area);
    }
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(area);
    app.clamp();
    let model = app.model();
    header(frame, top, app, model.as_deref());
    match (app.screen.clone(), model) {
        (Screen::Sessions, _) => sessions::draw(frame, middle, app),
        (_, None) => waiting(frame, middle, app),
        (Screen::Session, Some(model)) => session(frame, middle, app, &model),
        (Screen::Process(process), Some(model)) => {
            process::draw(frame, middle, app, &model, process)
        }
        (Screen::Stack(process), Some(model)) => {
            process::draw_stack(frame, middle, app, &model, process)
        }
    }
    footer(frame, bottom, app);
    if app.help {
        help(frame, middle, app);
    }
}

fn too_small(frame: &mut Frame, area: Rect) {
    let text = format!(
        "This terminal has {}x{} characters: too small. Make it {}x{}, or use `fiber top --once`. q \
         leaves.",
        area.width, area.height, SMALLEST.0, SMALLEST.1
    );
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}

fn header(frame: &mut Frame, area: Rect, app: &App, model: Option<&Model>) {
    let mut spans = vec![Span::styled("fiber top", app.theme.bold())];
    if app.paused {
        spans.push(Span::styled("  PAUSED", app.theme.bad()));
    }
    if let Some(model) = model.filter(|_| app.screen != Screen::Sessions) {
        let name = app.head().map(|head| head.name).unwrap_or_default();
        let (backend, summary) = (&model.stats.backend, model.summary.join(", "));
        spans.push(Span::raw(format!("  {}  ", model.stats.program)));
        spans.push(Span::styled(format!("{name}, {backend}, {summary}"), app.theme.dim()));
    }
    frame.render_widget(Line::from(spans), area);
}

fn footer(frame: &mut Frame, area: Rect, app: &App) {
    let line = if app.typing {
        Line::from(format!("/{}_  (Enter keeps it, Esc drops it)", app.current_filter().0))
    } else if let Some(notice) = &app.notice {
        Line::styled(notice.clone(), app.theme.bold())
    } else {
        let width = usize::from(area.width);
        let filter = match app.current_filter().0.as_str() {
            "" => String::new(),
            filter => format!(
                "{}  ",
                fit(&format!("filter: {filter} (Esc drops it)"), width / 2).trim_end()
            ),
        };
        let keys = hints(&app.screen, width.saturating_sub(filter.chars().count()));
        Line::styled(filter + &keys, app.theme.dim())
    };
    frame.render_widget(line, area);
}

/// Returns the keys that matter on a screen, as many as fit. The last two, how to get help and how
/// to leave, stay.
fn hints(screen: &Screen, width: usize) -> String {
    let mut hints = match screen {
        Screen::Sessions => vec!["Enter open", "/ filter", "up/down", "p pause"],
        Screen::Session => vec!["Tab pane", "Enter open", "/ filter", "o sort", "p pause"],
        Screen::Process(_) => vec!["s stacks", "Esc back", "/ filter", "p pause"],
        Screen::Stack(_) => vec!["Esc back", "s again", "/ filter", "up/down"],
    };
    let text = |hints: &[&str]| [hints, &["? help", "q leave"]].concat().join("  ");
    while text(&hints).len() > width && hints.pop().is_some() {}
    text(&hints)
}

fn waiting(frame: &mut Frame, area: Rect, app: &App) {
    let problem = app.observed.iter().filter_map(|session| session.stats.as_ref().err());
    let mut lines: Vec<String> = problem.map(ToString::to_string).collect();
    if lines.is_empty() {
        lines.push("Waiting for the session's head …".into());
    }
    frame.render_widget(Paragraph::new(lines.join("\n")).wrap(Wrap { trim: true }), area);
}

fn session(frame: &mut Frame, area: Rect, app: &mut App, model: &Model) {
    let named = model.named().map(|line| (Mark::Plain, line));
    let mut notices: Vec<_> = model.notices.iter().cloned().chain(named).collect();
    // The panes keep a row each, below a line of trends.
    notices.truncate(usize::from(area.height.saturating_sub(COMPLETE - 1)));
    let notices_height = notices.len() as u16;
    let pools = u16::try_from(model.pools.rows.len()).unwrap_or(u16::MAX);
    // A line more than pools for the head of the table, and two for the border.
    let most = (area.height / 3).saturating_sub(1).max(4);
    let [top, trends, pools_area, middle, bottom] = Layout::vertical([
        Constraint::Length(notices_height),
        Constraint::Length(if area.height < COMPLETE + notices_height { 1 } else { 2 }),
        Constraint::Length(pools.saturating_add(3).min(most)),
        Constraint::Min(5),
        Constraint::Length((area.height / 4).clamp(3, 10)),
    ])
    .areas(area);
    let notices: Vec<Line> = notices
        .into_iter()
        .map(|(mark, line)| Line::styled(fit(&line, top.width.into()), app.theme.mark(mark)))
        .collect();
    frame.render_widget(Paragraph::new(notices), top);
    sparks(frame, trends, app, model);
    panes::draw(frame, pools_area, app, model, Pane::Pools);
    // A session without pools has room for its actors. A pane with the focus is always shown.
    let of_pools = !is_service(&model.stats);
    let right = if of_pools || app.pane == Pane::Workers {
        let halves = [Constraint::Percentage(48), Constraint::Percentage(52)];
        let [left, right] = Layout::horizontal(halves).areas(middle);
        workers::draw(frame, left, app, model);
        right
    } else {
        middle
    };
    let mut details = Pane::DETAILS.to_vec();
    details.retain(|pane| match pane {
        Pane::Tasks | Pane::Functions => of_pools || app.pane == *pane,
        Pane::Actors => !model.actors.rows.is_empty() || app.pane == *pane,
        _ => true,
    });
    if right.height < TALL * details.len() as u16 {
        let chosen = details.iter().find(|pane| **pane == app.detail).or(details.first());
        details = chosen.copied().into_iter().collect();
    }
    let areas = Layout::vertical(vec![Constraint::Fill(1); details.len()]).split(right);
    for (pane, area) in details.into_iter().zip(areas.iter()) {
        panes::draw(frame, *area, app, model, pane);
    }
    panes::draw(frame, bottom, app, model, Pane::Events);
}

/// Draws throughput and memory over time.
fn sparks(frame: &mut Frame, area: Rect, app: &App, model: &Model) {
    let halves = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas::<2>(area);
    for (area, trend) in halves.into_iter().zip(&model.trends) {
        let title = Line::from(vec![
            Span::styled(format!("{} ", trend.name), app.theme.dim()),
            Span::styled(trend.now.clone(), app.theme.bold()),
        ]);
        let bars = app.theme.spark(&trend.values, usize::from(area.width));
        let bars = Line::styled(bars, app.theme.good());
        frame.render_widget(Paragraph::new(vec![title, bars]), area);
    }
}

fn help(frame: &mut Frame, area: Rect, app: &App) {
    let height = HELP.len() as u16 + 2;
    let longest = HELP.iter().map(|(_, what)| what.len()).max().unwrap_or(0);
    // The keys, the text, a space on both sides, and the border.
    let width = HELP_KEYS as u16 + longest as u16 + 4;
    let place = area.centered(Constraint::Length(width), Constraint::Length(height));
    let lines: Vec<Line> = HELP
        .iter()
        .map(|(keys, what)| {
            Line::from(vec![
                Span::styled(format!(" {keys:<HELP_KEYS$}"), app.theme.bold()),
                Span::raw(*what),
            ])
        })
        .collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(block(app, "Keys", true)), place);
}

/// Returns the frame of a pane.
fn block<'a>(app: &App, title: impl Into<String>, focused: bool) -> Block<'a> {
    let border = if focused { app.theme.title(false) } else { app.theme.dim() };
    Block::bordered()
        .border_set(app.theme.border())
        .border_style(border)
        .title(Span::styled(format!(" {} ", title.into()), app.theme.title(focused)))
}

/// Returns the end of a pane's title: how its rows are sorted.
fn sorted(app: &App, pane: Pane) -> String {
    match app.order(pane) {
        Order::Natural => String::new(),
        order => format!(" by {}", order.name()),
    }
}

/// Returns the first row to show, so that the selected one is seen.
fn first_row(cursor: usize, height: usize, rows: usize) -> usize {
    let last = rows.saturating_sub(height);
    (cursor + 1).saturating_sub(height).min(last)
}

fn marked(selected: bool, focused: bool, app: &App) -> Style {
    if selected && focused { app.theme.selected() } else { Style::new() }
}

#[cfg(test)]
mod tests;
