package traffic

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"
)

// Item is one request of a trace.
type Item struct {
	At             time.Duration // since the first
	Prompt, Output int           // tokens
}

// ReadAzure reads the first n requests of a trace in the form of the Azure LLM
// inference traces of 2023: TIMESTAMP,ContextTokens,GeneratedTokens.
func ReadAzure(r io.Reader, n int) ([]Item, error) {
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = 3
	if _, err := rows.Read(); err != nil {
		return nil, fmt.Errorf("trace header: %w", err)
	}
	var out []Item
	var first time.Time
	for len(out) < n {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		at, err := time.Parse("2006-01-02 15:04:05.9999999", row[0])
		if err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		if first.IsZero() {
			first = at
		}
		prompt, err1 := strconv.Atoi(row[1])
		output, err2 := strconv.Atoi(row[2])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("trace: %w", err)
		}
		out = append(out, Item{at.Sub(first), prompt, output})
	}
	return out, nil
}

// Quantiles of the 19,366 requests of the Azure conversation trace of 2023
// (CC-BY, github.com/Azure/AzurePublicDataset): the shape without the trace.
var (
	quantileAt     = []float64{0, .01, .02, .05, .10, .15, .20, .25, .30, .35, .40, .45, .50, .55, .60, .65, .70, .75, .80, .85, .90, .95, .98, .99, .995, 1}
	promptTokens   = []float64{2, 29, 91, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020, 1045, 1071, 1097, 1130, 1189, 1315, 1877, 2735, 4083, 4098, 4142, 4831, 14050}
	outputTokens   = []float64{7, 16, 24, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151, 177, 217, 384, 395, 400, 411, 424, 451, 540, 601, 644, 1000}
	gapMillisecond = []float64{0, .5, 1.4, 6.3, 16.1, 26.4, 36.5, 48.3, 60.7, 73.5, 87.3, 101.9, 118.4, 137.6, 158.7, 183.2, 213.6, 246.7, 288.9, 345.9, 420.7, 565.2, 749.3, 890.9, 1049.9, 4314.6}
)

// Generated draws n requests from the quantiles. Lengths of prompt and answer,
// and the gaps, are drawn apart: the trace's own correlations are not kept.
func Generated(seed uint64, n int) []Item {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]Item, n)
	var at time.Duration
	for i := range out {
		out[i] = Item{at, int(draw(r, promptTokens)), int(draw(r, outputTokens))}
		at += time.Duration(draw(r, gapMillisecond) * float64(time.Millisecond))
	}
	return out
}

// draw inverts the distribution, straight between two quantiles.
func draw(r *rand.Rand, values []float64) float64 {
	u := r.Float64()
	for i := 1; i < len(quantileAt); i++ {
		if low, high := quantileAt[i-1], quantileAt[i]; u <= high {
			return values[i-1] + (values[i]-values[i-1])*(u-low)/(high-low)
		}
	}
	return values[len(values)-1]
}

// Speed compresses the arrivals by a factor.
func Speed(items []Item, factor float64) []Item {
	out := make([]Item, len(items))
	for i, it := range items {
		it.At = time.Duration(float64(it.At) / factor)
		out[i] = it
	}
	return out
}
