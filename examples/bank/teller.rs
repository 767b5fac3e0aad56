//! The tellers, who transfer money, and their receipts.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

use fiber::entities::find_entities;
use serde::{Deserialize, Serialize};

use super::account::{Account, Outcome, Transfer};
use super::{ACCOUNTS, BANK, account_name, perhaps_die};

#[derive(Serialize, Deserialize)]
pub(crate) struct Teller {
    pub(crate) number: u32,
    /// How many transfers the teller makes.
    pub(crate) transfers: u64,
    pub(crate) deaths: u32,
    pub(crate) folder: PathBuf,
}

/// A transfer that is to be made.
pub(crate) struct Order {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) amount: u64,
}

/// A transfer that the bank has answered.
pub(crate) struct Receipt {
    pub(crate) order: Order,
    pub(crate) outcome: Outcome,
}

impl Order {
    /// Returns a teller's order of a number: the same one each time.
    fn new(teller: u32, number: u64) -> Order {
        let mut random = fastrand::Rng::with_seed((u64::from(teller) << 40) + number);
        let from = random.usize(0..ACCOUNTS);
        let to = (from + random.usize(1..ACCOUNTS)) % ACCOUNTS;
        Order { from: account_name(from), to: account_name(to), amount: random.u64(1..=500) }
    }
}

/// Makes the transfers of a teller that have no receipt. It runs again when its process has died.
pub(crate) fn work(teller: Teller) -> std::result::Result<(), String> {
    make_transfers(&teller).map_err(|error| format!("teller {}: {error}", teller.number))
}

fn make_transfers(teller: &Teller) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Teller { number: teller, transfers, deaths, folder } = teller;
    let accounts = find_entities::<Account>(BANK).wait()?;
    let (known, mut file) = open(folder, *teller)?;
    for number in known.len() as u64 + 1..=*transfers {
        let Order { from, to, amount } = Order::new(*teller, number);
        let transfer = Transfer { teller: *teller, number, to: to.clone(), amount };
        let outcome = accounts.of(&from).resend().send(transfer).wait()?;
        // The transfer has happened, and has no receipt: the next process asks for it again.
        perhaps_die(*deaths);
        file.write_all(format!("{from} {to} {amount} {outcome:?}\n").as_bytes())?;
        file.sync_data()?;
    }
    Ok(())
}

/// Returns the receipts of a teller.
pub(crate) fn receipts(folder: &Path, teller: u32) -> Result<Vec<Receipt>> {
    open(folder, teller).map(|(receipts, _)| receipts)
}

/// Returns the receipts of a teller, and the file to which more are added.
fn open(folder: &Path, teller: u32) -> Result<(Vec<Receipt>, File)> {
    let path = folder.join(format!("teller-{teller}"));
    let named = |error: Error| Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = OpenOptions::new().create(true).append(true).open(&path).map_err(named)?;
    let text = std::fs::read_to_string(&path).map_err(named)?;
    // The power may have failed while the last line was written.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    file.set_len(whole as u64)?;
    let receipts = text[..whole].lines().map(|line| {
        Receipt::read(line).ok_or_else(|| {
            let problem = format!("it has a line `{line}`, which is no receipt");
            named(Error::new(ErrorKind::InvalidData, problem))
        })
    });
    Ok((receipts.collect::<Result<_>>()?, file))
}

impl Receipt {
    fn read(line: &str) -> Option<Receipt> {
        let [from, to, amount, outcome] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let outcome = match outcome {
            "Accepted" => Outcome::Accepted,
            "Refused" => Outcome::Refused,
            _ => return None,
        };
        let order = Order { from: from.into(), to: to.into(), amount: amount.parse().ok()? };
        Some(Receipt { order, outcome })
    }
}
