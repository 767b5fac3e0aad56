//! The state of the screen, and what keys do to it.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use fiber_backends::cluster::SessionHead;
use fiber_core::ProcessId;
use fiber_core::stats::SessionStats;

use super::theme::Theme;
use crate::inspect::sessions::Observed;
use crate::model::Model;
use crate::model::table::{Filter, Order, Row, Table};
use crate::model::trends::{AllTrends, Trends};
use crate::model::workers::{self, Worker};

/// The panes of a session's screen, in the order of Tab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    #[default]
    Pools,
    Workers,
    Tasks,
    Functions,
    Actors,
    Processes,
    Events,
}

impl Pane {
    pub(crate) const ALL: [Pane; 7] = [
        Pane::Pools,
        Pane::Workers,
        Pane::Tasks,
        Pane::Functions,
        Pane::Actors,
        Pane::Processes,
        Pane::Events,
    ];
    /// Those that share a place on a small screen.
    pub(crate) const DETAILS: [Pane; 4] =
        [Pane::Tasks, Pane::Functions, Pane::Actors, Pane::Processes];

    /// Returns whether it shares its place with others on a small screen.
    pub(crate) fn is_detail(self) -> bool {
        Pane::DETAILS.contains(&self)
    }

    /// Returns its table. Workers are drawn one by one.
    pub(crate) fn table(self, model: &Model) -> Option<&Table> {
        match self {
            Pane::Pools => Some(&model.pools),
            Pane::Workers => None,
            Pane::Tasks => Some(&model.tasks),
            Pane::Functions => Some(&model.functions),
            Pane::Actors => Some(&model.actors),
            Pane::Processes => Some(&model.processes),
            Pane::Events => Some(&model.events),
        }
    }
}

/// The content of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Screen {
    /// The list of sessions.
    #[default]
    Sessions,
    /// One session.
    Session,
    /// One process of it.
    Process(ProcessId),
    /// The stacks of a process.
    Stack(ProcessId),
}

/// The caller's work after a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Leave,
    /// Ask the head for the stacks of a process.
    Stack(SessionHead, ProcessId),
}

#[derive(Debug, Default)]
pub(crate) struct App {
    pub(crate) theme: Theme,
    pub(crate) observed: Vec<Observed>,
    /// The number of the session that is shown.
    session: Option<String>,
    /// What is shown of it, once its head has answered.
    model: Option<Arc<Model>>,
    /// Whether the command line names the session, or there is no other.
    pub(crate) only: bool,
    pub(crate) screen: Screen,
    pub(crate) pane: Pane,
    /// The pane that shares the place of [details](Pane::is_detail).
    pub(crate) detail: Pane,
    pub(crate) help: bool,
    pub(crate) paused: bool,
    /// The filter of a session's panes.
    pub(crate) filter: Filter,
    /// The filter of the list of sessions.
    sessions_filter: Filter,
    /// The filter of the lines of a process's output, and of its threads.
    pub(crate) text_filter: Filter,
    /// Whether keys go to the filter.
    pub(crate) typing: bool,
    pub(crate) orders: [Order; Pane::ALL.len()],
    /// The selected row of each pane, and of the list of sessions.
    pub(crate) cursors: [usize; Pane::ALL.len()],
    pub(crate) session_cursor: usize,
    /// The workers of the cell of the grid that was opened: the first one and their number.
    pub(crate) zoom: Option<(usize, usize)>,
    /// The layout of the grid when it was drawn: cells in a row, and workers of a cell.
    pub(crate) grid: Option<(usize, usize)>,
    /// The text of [`Screen::Stack`], once it is there.
    pub(crate) stack: Option<String>,
    pub(crate) scroll: usize,
    /// Something to tell, until the next key.
    pub(crate) notice: Option<String>,
    trends: AllTrends,
}

impl App {
    pub(crate) fn new(theme: Theme, session: Option<String>) -> App {
        App {
            theme,
            only: session.is_some(),
            screen: if session.is_some() { Screen::Session } else { Screen::Sessions },
            session,
            detail: Pane::Tasks,
            ..App::default()
        }
    }

    /// Takes what the heads have answered. Returns what to say in the end if the session has ended.
    pub(crate) fn update(&mut self, observed: Vec<Observed>) -> Option<String> {
        if self.paused {
            return None;
        }
        let shown = self.head().map(|head| (head, self.model()));
        self.observed = observed;
        self.trends.update(&self.observed);
        self.choose(self.session.clone());
        // A session that does not answer has not ended.
        let (head, model) = shown?;
        if self.observed.iter().any(|session| session.head == head) {
            return None;
        }
        let program = model.map_or(String::new(), |model| format!(" ({})", model.stats.program));
        let ended = format!("The session of {}{program} has ended.", head.name);
        if self.only || self.observed.is_empty() {
            return Some(ended);
        }
        (self.screen, self.notice) = (Screen::Sessions, Some(ended));
        self.choose(None);
        None
    }

    /// Shows the only session at once.
    pub(crate) fn open_only(&mut self) {
        if let [session] = self.observed.as_slice()
            && let Ok(stats) = &session.stats
        {
            let session = stats.session.clone();
            self.choose(Some(session));
            self.screen = Screen::Session;
        }
    }

    /// Shows this session, as far as its head has answered.
    fn choose(&mut self, session: Option<String>) {
        self.session = session;
        let model = self.shown().map(|(_, stats)| Model::new(stats, self.trends()));
        self.model = model.map(Arc::new);
    }

    /// Returns the session that is shown, if its head has answered.
    fn shown(&self) -> Option<(&Observed, &Arc<SessionStats>)> {
        let session = self.session.as_ref()?;
        self.sessions().find(|(_, stats)| stats.session == *session)
    }

    pub(crate) fn sessions<'a>(
        &'a self,
    ) -> impl Iterator<Item = (&'a Observed, &'a Arc<SessionStats>)> {
        let answered = |session: &'a Observed| Some((session, session.stats.as_ref().ok()?));
        self.observed.iter().filter_map(answered)
    }

    /// Returns the sessions of the list, without those that its filter hides.
    pub(crate) fn listed_sessions(&self) -> Vec<(&Observed, &Arc<SessionStats>)> {
        let fits = |(session, stats): &(&Observed, &Arc<SessionStats>)| {
            let filter = &self.sessions_filter;
            filter.passes(&session.head.name) || filter.passes(&stats.program)
        };
        self.sessions().filter(fits).collect()
    }

    /// Returns the filter of what is shown.
    pub(crate) fn current_filter(&self) -> &Filter {
        match self.screen {
            Screen::Sessions => &self.sessions_filter,
            Screen::Session => &self.filter,
            Screen::Process(_) | Screen::Stack(_) => &self.text_filter,
        }
    }

    fn current_filter_mut(&mut self) -> &mut Filter {
        match self.screen {
            Screen::Sessions => &mut self.sessions_filter,
            Screen::Session => &mut self.filter,
            Screen::Process(_) | Screen::Stack(_) => &mut self.text_filter,
        }
    }

    /// Shows something else, from its beginning and without a filter of its text.
    fn show(&mut self, screen: Screen) {
        (self.screen, self.scroll, self.text_filter) = (screen, 0, Filter::default());
    }

    /// Returns what is shown of the session.
    pub(crate) fn model(&self) -> Option<Arc<Model>> {
        self.model.clone()
    }

    /// Returns the head of the session that is shown.
    pub(crate) fn head(&self) -> Option<SessionHead> {
        self.shown().map(|(observed, _)| observed.head.clone())
    }

    pub(crate) fn trends(&self) -> Option<&Trends> {
        self.trends.of(self.session.as_ref()?)
    }

    pub(crate) fn order(&self, pane: Pane) -> Order {
        self.orders[pane as usize]
    }

    pub(crate) fn cursor(&self, pane: Pane) -> usize {
        self.cursors[pane as usize]
    }

    /// Returns the place of the selected pool.
    pub(crate) fn pool(&self, model: &Model) -> Option<usize> {
        Some(self.cursor(Pane::Pools).min(model.workers.len().checked_sub(1)?))
    }

    /// Returns the workers of the selected pool that the filter lets pass, sorted.
    pub(crate) fn workers<'a>(&self, model: &'a Model) -> Vec<&'a Worker> {
        let order = self.order(Pane::Workers);
        match self.pool(model) {
            Some(pool) => workers::listed(&model.workers[pool], &self.filter, order),
            None => Vec::new(),
        }
    }

    /// Returns the rows of a pane's table that the filter lets pass, sorted, with their depths.
    pub(crate) fn rows<'a>(&self, model: &'a Model, pane: Pane) -> Vec<(usize, &'a Row)> {
        match pane.table(model) {
            // The filter is for what pools have.
            Some(table) if pane == Pane::Pools => table.listed(&Filter::default(), Order::Natural),
            Some(table) => table.listed(&self.filter, self.order(pane)),
            None => Vec::new(),
        }
    }

    /// Returns the number of rows of a pane.
    fn length(&self, model: &Model, pane: Pane) -> usize {
        if pane != Pane::Workers {
            return self.rows(model, pane).len();
        }
        let workers = self.workers(model).len();
        match (self.zoom, self.grid) {
            (Some((first, number)), _) => number.min(workers.saturating_sub(first)),
            (None, Some((_, each))) => workers.div_ceil(each),
            (None, None) => workers,
        }
    }

    /// Does what a key asks for.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::None;
        }
        self.notice = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Effect::Leave;
        }
        if self.typing {
            self.type_filter(key.code);
            return Effect::None;
        }
        if self.help {
            self.help = false;
            return if key.code == KeyCode::Char('q') { Effect::Leave } else { Effect::None };
        }
        match key.code {
            KeyCode::Char('q') => return Effect::Leave,
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('s') => return self.ask_for_stack(),
            KeyCode::Char('o') if self.screen == Screen::Session => {
                let order = &mut self.orders[self.pane as usize];
                *order = order.next();
            }
            KeyCode::Esc | KeyCode::Backspace => self.back(),
            KeyCode::Enter => self.open(),
            KeyCode::Tab => self.next_pane(1),
            KeyCode::BackTab => self.next_pane(Pane::ALL.len() - 1),
            KeyCode::Up | KeyCode::Char('k') => self.go(-1, true),
            KeyCode::Down | KeyCode::Char('j') => self.go(1, true),
            KeyCode::Left | KeyCode::Char('h') => self.go(-1, false),
            KeyCode::Right | KeyCode::Char('l') => self.go(1, false),
            KeyCode::PageUp => self.go(-10, true),
            KeyCode::PageDown => self.go(10, true),
            KeyCode::Home => self.go(isize::MIN / 2, false),
            KeyCode::End => self.go(isize::MAX / 2, false),
            _ => {}
        }
        Effect::None
    }

    fn type_filter(&mut self, key: KeyCode) {
        let filter = self.current_filter_mut();
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                *filter = Filter::default();
                self.typing = false;
            }
            KeyCode::Backspace => drop(filter.0.pop()),
            KeyCode::Char(c) => filter.0.push(c),
            _ => {}
        }
        self.scroll = 0;
        if self.screen == Screen::Session {
            (self.zoom, self.cursors[Pane::Workers as usize]) = (None, 0);
        }
    }

    fn back(&mut self) {
        match self.screen {
            Screen::Process(_) | Screen::Stack(_) if !self.text_filter.0.is_empty() => {
                (self.text_filter, self.scroll) = (Filter::default(), 0);
            }
            Screen::Stack(process) => self.show(Screen::Process(process)),
            Screen::Process(_) => self.show(Screen::Session),
            Screen::Session if self.zoom.is_some() => {
                let (first, _) = self.zoom.take().unwrap_or_default();
                let each = self.grid.map_or(1, |(_, each)| each);
                self.cursors[Pane::Workers as usize] = first / each;
            }
            Screen::Session if !self.filter.0.is_empty() => self.filter = Filter::default(),
            Screen::Session if !self.only => {
                self.screen = Screen::Sessions;
                self.choose(None);
            }
            Screen::Session => {}
            Screen::Sessions => self.sessions_filter = Filter::default(),
        }
    }

    fn open(&mut self) {
        match self.screen {
            Screen::Sessions => {
                let listed = self.listed_sessions();
                let chosen = listed.get(self.session_cursor);
                if let Some(session) = chosen.map(|(_, stats)| stats.session.clone()) {
                    self.choose(Some(session));
                    self.screen = Screen::Session;
                    self.cursors = [0; Pane::ALL.len()];
                    (self.zoom, self.pane) = (None, Pane::Pools);
                }
            }
            Screen::Session => {
                let Some(model) = self.model() else { return };
                if self.pane == Pane::Pools && !model.pools.rows.is_empty() {
                    self.pane = Pane::Workers;
                } else if let (Pane::Workers, None, Some((_, each @ 2..))) =
                    (self.pane, self.zoom, self.grid)
                {
                    self.zoom = Some((self.cursor(Pane::Workers) * each, each));
                    self.cursors[Pane::Workers as usize] = 0;
                } else if let Some(process) = self.chosen_process(&model) {
                    self.show(Screen::Process(process));
                }
            }
            Screen::Process(_) | Screen::Stack(_) => {}
        }
    }

    /// Returns the process of the selected row.
    fn chosen_process(&self, model: &Model) -> Option<ProcessId> {
        let cursor = self.cursor(self.pane);
        if self.pane != Pane::Workers {
            return self.rows(model, self.pane).get(cursor)?.1.process;
        }
        let first = self.zoom.map_or(0, |(first, _)| first);
        self.workers(model).get(first + cursor).map(|worker| worker.process)
    }

    fn ask_for_stack(&mut self) -> Effect {
        let Some(model) = self.model() else { return Effect::None };
        let process = match self.screen {
            Screen::Process(process) | Screen::Stack(process) => Some(process),
            Screen::Session => self.chosen_process(&model),
            Screen::Sessions => None,
        };
        let (Some(process), Some(head)) = (process, self.head()) else { return Effect::None };
        self.stack = None;
        self.show(Screen::Stack(process));
        Effect::Stack(head, process)
    }

    fn next_pane(&mut self, by: usize) {
        if self.screen != Screen::Session {
            return;
        }
        self.pane = Pane::ALL[(self.pane as usize + by) % Pane::ALL.len()];
        if self.pane.is_detail() {
            self.detail = self.pane;
        }
    }

    fn go(&mut self, by: isize, is_vertical: bool) {
        let moved = |cursor: usize, by: isize, length: usize| {
            cursor.saturating_add_signed(by).min(length.saturating_sub(1))
        };
        match self.screen {
            Screen::Sessions => {
                self.session_cursor = moved(self.session_cursor, by, self.listed_sessions().len());
            }
            // The drawing limits it to the length of the text.
            Screen::Process(_) | Screen::Stack(_) => {
                self.scroll = moved(self.scroll, by, usize::MAX);
            }
            Screen::Session => {
                let Some(model) = self.model() else { return };
                let columns = match (self.pane, self.zoom, self.grid) {
                    (Pane::Workers, None, Some((columns, _))) if is_vertical => columns,
                    _ => 1,
                };
                let by = by.saturating_mul(columns as isize);
                let length = self.length(&model, self.pane);
                let cursor = &mut self.cursors[self.pane as usize];
                *cursor = moved(*cursor, by, length);
                if self.pane == Pane::Pools {
                    (self.zoom, self.cursors[Pane::Workers as usize]) = (None, 0);
                }
            }
        }
    }

    /// Keeps all cursors on rows that exist.
    pub(crate) fn clamp(&mut self) {
        self.session_cursor =
            self.session_cursor.min(self.listed_sessions().len().saturating_sub(1));
        let Some(model) = self.model() else { return };
        for pane in Pane::ALL {
            let last = self.length(&model, pane).saturating_sub(1);
            let cursor = &mut self.cursors[pane as usize];
            *cursor = (*cursor).min(last);
        }
        if let Screen::Process(process) = self.screen
            && model.stats.report.process(process).is_none()
        {
            self.screen = Screen::Session;
            self.notice = Some("That process has ended.".into());
        }
    }
}
