package optim

// Metrics are the logical bytes of the state held now. state_total_bytes is there for
// every configuration. With 8-bit moments the adam8_ keys split them into codes, the
// float32 moments of exempt parameters and the blocks' scales; with 4-bit moments the
// adam4_ keys into codes, and scales and factors. master_bytes are the lower halves of
// split masters. Sums of micro-batches and Muon's workspace are not state, and not counted.
func (o *Optimizer) Metrics() map[string]int64 {
	var sum stateBytes
	for _, p := range o.params {
		for _, t := range p.moments.tensors() {
			sum.add(p.storage, stateSize{t.Kind, t.dtype(), t.elements()})
		}
	}
	return sum.metrics(o.config)
}

// stateBytes are the bytes of states by what they are for.
type stateBytes struct {
	numbers  int64 // moments that are not codes
	codes    int64
	metadata int64 // scales and factors
	master   int64
}

func (b *stateBytes) add(storage storage, s stateSize) {
	switch {
	case s.kind == "low":
		b.master += s.bytes()
	case storage == storeFloat32 || storage == storeBF16:
		b.numbers += s.bytes()
	case s.dtype == "U8":
		b.codes += s.bytes()
	default:
		b.metadata += s.bytes()
	}
}

func (b *stateBytes) moments() int64 { return b.numbers + b.codes }

func (b *stateBytes) total() int64 { return b.moments() + b.metadata + b.master }

func (b *stateBytes) metrics(config Config) map[string]int64 {
	m := map[string]int64{"state_total_bytes": b.total()}
	if b.master > 0 {
		m["master_bytes"] = b.master
	}
	if c, ok := config.(AdamWConfig); ok && c.Adam8bit {
		m["adam8_quantized_state_bytes"] = b.codes
		m["adam8_fp32_exempt_bytes"] = b.numbers
		m["adam8_block_metadata_bytes"] = b.metadata
		m["adam8_total_bytes"] = b.moments() + b.metadata
	} else if ok && c.Adam4bit {
		m["adam4_quantized_state_bytes"] = b.codes
		m["adam4_scale_metadata_bytes"] = b.metadata
		m["adam4_total_bytes"] = b.codes + b.metadata
	}
	return m
}
