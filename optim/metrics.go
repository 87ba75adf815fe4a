package optim

// Metrics are the logical bytes of the state held now. state_total_bytes is there for
// every configuration. With 8-bit moments the adam8_ keys split them into codes, the
// float32 moments of exempt parameters and the blocks' scales; with 4-bit moments the
// adam4_ keys into codes, and scales and factors. master_bytes are the lower halves of
// split masters. Sums of micro-batches and Muon's workspace are not state, and not counted.
func (o *Optimizer) Metrics() map[string]int64 {
	var total, master, codes, metadata, exempt int64
	for _, p := range o.params {
		for _, t := range p.moments.tensors() {
			total += t.bytes()
			switch {
			case t.Kind == "low":
				master += t.bytes()
			case p.storage == storeFloat32:
				exempt += t.bytes()
			case t.U8 != nil:
				codes += t.bytes()
			default:
				metadata += t.bytes()
			}
		}
	}
	m := map[string]int64{"state_total_bytes": total}
	if master > 0 {
		m["master_bytes"] = master
	}
	if c, ok := o.config.(AdamWConfig); ok && c.Adam8bit {
		m["adam8_quantized_state_bytes"] = codes
		m["adam8_fp32_exempt_bytes"] = exempt
		m["adam8_block_metadata_bytes"] = metadata
		m["adam8_total_bytes"] = codes + exempt + metadata
	} else if ok && c.Adam4bit {
		m["adam4_quantized_state_bytes"] = codes
		m["adam4_scale_metadata_bytes"] = metadata
		m["adam4_total_bytes"] = codes + metadata
	}
	return m
}
