//! Data sets of handwritten digits: UCI's, which is part of the example, and MNIST.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, ensure};
use flate2::read::GzDecoder;
use ndarray::{Array1, Array2};

/// Images, one in each row, with values from 0 to 1, and the digits that they show.
pub(crate) struct Digits {
    pub(crate) images: Array2<f32>,
    pub(crate) labels: Array1<usize>,
}

/// A data set, split into training and test images.
pub(crate) struct Split {
    pub(crate) train: Digits,
    pub(crate) test: Digits,
}

/// The number of UCI images used for tests. They are the last ones.
const TEST_IMAGES: usize = 297;

/// Returns the UCI digits, which are compiled into the program.
pub(crate) fn uci() -> anyhow::Result<Split> {
    let packed = include_bytes!("../data/digits.csv.gz");
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text)?;
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (pixels, label) = line.rsplit_once(',').context("a line without a label")?;
        for pixel in pixels.split(',') {
            images.push(pixel.parse::<f32>()? / 16.0);
        }
        labels.push(label.parse()?);
    }
    let train = labels.len() - TEST_IMAGES;
    let columns = images.len() / labels.len();
    let digits = |images: &[f32], labels: &[usize]| -> anyhow::Result<Digits> {
        let images = Array2::from_shape_vec((labels.len(), columns), images.to_vec())?;
        Ok(Digits { images, labels: labels.to_vec().into() })
    };
    let cut = train * columns;
    Ok(Split {
        train: digits(&images[..cut], &labels[..train])?,
        test: digits(&images[cut..], &labels[train..])?,
    })
}

/// Reads MNIST from a directory with its four files (`train-images-idx3-ubyte` and so on, plain or
/// compressed with gzip).
pub(crate) fn mnist(directory: &Path) -> anyhow::Result<Split> {
    let read = |name: &str| -> anyhow::Result<Digits> {
        let (shape, pixels) = idx(directory, &format!("{name}-images-idx3-ubyte"))?;
        let (_, labels) = idx(directory, &format!("{name}-labels-idx1-ubyte"))?;
        let images = pixels.iter().map(|pixel| f32::from(*pixel) / 255.0).collect();
        let images = Array2::from_shape_vec((shape[0], shape[1..].iter().product()), images)?;
        ensure!(
            images.nrows() == labels.len(),
            "{name}: {} images, {} labels",
            images.nrows(),
            labels.len()
        );
        Ok(Digits { images, labels: labels.into_iter().map(usize::from).collect() })
    };
    Ok(Split { train: read("train")?, test: read("t10k")? })
}

/// Reads a file in IDX format. Returns its shape and its bytes.
fn idx(directory: &Path, name: &str) -> anyhow::Result<(Vec<usize>, Vec<u8>)> {
    let packed = directory.join(format!("{name}.gz"));
    let mut bytes = Vec::new();
    if packed.exists() {
        GzDecoder::new(std::fs::File::open(&packed)?).read_to_end(&mut bytes)?;
    } else {
        let plain = directory.join(name);
        bytes = std::fs::read(&plain).with_context(|| format!("reading {}", plain.display()))?;
    }
    // The header: two zeroes, the type (8 for bytes), the number of dimensions, and the size of
    // each dimension as a big-endian number.
    ensure!(bytes.len() >= 4 && bytes[..3] == [0, 0, 8], "{name} is not an IDX file of bytes");
    let start = 4 + 4 * usize::from(bytes[3]);
    ensure!(bytes.len() >= start, "{name} ends in its header");
    let shape = bytes[4..start].chunks_exact(4);
    let shape: Vec<usize> = shape
        .map(|size| u32::from_be_bytes([size[0], size[1], size[2], size[3]]) as usize)
        .collect();
    let data = bytes.split_off(start);
    ensure!(data.len() == shape.iter().product::<usize>(), "{name} is truncated");
    Ok((shape, data))
}
