//! A network with one hidden layer, and its gradient.

use fastrand::Rng;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Zip, s};

use super::digits::Digits;
use super::training::small;

const DIGITS: usize = 10;

/// A network of pixels, a hidden layer of rectified units, and a softmax over ten digits.
pub(crate) struct Network {
    inputs: usize,
    hidden: usize,
    /// The weights of all layers in one vector, as ranks exchange them.
    pub(crate) weights: Vec<f32>,
}

/// The weights, as layers.
struct Layers<'a> {
    first: ArrayView2<'a, f32>,
    first_bias: ArrayView1<'a, f32>,
    second: ArrayView2<'a, f32>,
    second_bias: ArrayView1<'a, f32>,
}

impl Network {
    pub(crate) fn new(inputs: usize, hidden: usize, seed: u64) -> Network {
        let mut random = Rng::with_seed(seed);
        let mut weights = Vec::new();
        for (inputs, outputs) in [(inputs, hidden), (hidden, DIGITS)] {
            // K. He and others, "Delving Deep into Rectifiers", 2015.
            let limit = (6.0 / inputs as f32).sqrt();
            weights.extend((0..inputs * outputs).map(|_| small(&mut random, limit)));
            weights.extend(std::iter::repeat_n(0.0, outputs));
        }
        Network { inputs, hidden, weights }
    }

    fn layers(&self) -> Layers<'_> {
        let (first, rest) = self.weights.split_at(self.inputs * self.hidden);
        let (first_bias, rest) = rest.split_at(self.hidden);
        let (second, second_bias) = rest.split_at(self.hidden * DIGITS);
        let matrix = |shape, weights| {
            ArrayView2::from_shape(shape, weights).expect("weights fill their layers")
        };
        Layers {
            first: matrix((self.inputs, self.hidden), first),
            first_bias: first_bias.into(),
            second: matrix((self.hidden, DIGITS), second),
            second_bias: second_bias.into(),
        }
    }

    /// Returns the outputs of the hidden layer, and the probability of each digit.
    fn forward(&self, images: &Array2<f32>) -> (Array2<f32>, Array2<f32>) {
        let layers = self.layers();
        let hidden = (images.dot(&layers.first) + layers.first_bias).mapv(|x| x.max(0.0));
        let mut probabilities = hidden.dot(&layers.second) + layers.second_bias;
        for mut row in probabilities.rows_mut() {
            let most = row.fold(f32::NEG_INFINITY, |most, x| most.max(*x));
            row.mapv_inplace(|x| (x - most).exp());
            let sum = row.sum();
            row /= sum;
        }
        (hidden, probabilities)
    }

    /// Returns the gradient of the loss, summed over the chosen images, and that loss.
    pub(crate) fn gradient(&self, data: &Digits, chosen: &[usize]) -> (Vec<f32>, f32) {
        let images = data.images.select(Axis(0), chosen);
        let (hidden, mut error) = self.forward(&images);
        let mut loss = 0.0;
        for (row, image) in chosen.iter().enumerate() {
            let label = data.labels[*image];
            loss -= error[[row, label]].max(f32::MIN_POSITIVE).ln();
            error[[row, label]] -= 1.0;
        }
        let mut back = error.dot(&self.layers().second.t());
        Zip::from(&mut back).and(&hidden).for_each(|back, hidden| {
            if *hidden == 0.0 {
                *back = 0.0;
            }
        });
        let mut gradient = Vec::with_capacity(self.weights.len());
        for (input, error) in [(&images, &back), (&hidden, &error)] {
            let weights: Array2<f32> = input.t().dot(error);
            gradient.extend(weights.iter());
            let bias: Array1<f32> = error.sum_axis(Axis(0));
            gradient.extend(bias.iter());
        }
        (gradient, loss)
    }

    pub(crate) fn step(&mut self, gradient: &[f32], rate: f32) {
        self.weights.iter_mut().zip(gradient).for_each(|(weight, slope)| *weight -= rate * slope);
    }

    /// Returns the fraction of the images that are classified correctly.
    pub(crate) fn accuracy(&self, data: &Digits) -> f32 {
        let (_, probabilities) = self.forward(&data.images);
        let right = (0..data.labels.len()).filter(|image| {
            let row = probabilities.slice(s![*image, ..]);
            let best = (0..DIGITS).max_by(|a, b| row[*a].total_cmp(&row[*b]));
            best == Some(data.labels[*image])
        });
        right.count() as f32 / data.labels.len() as f32
    }
}
