//go:build !amd64 || purego

package roofs

func streamFuncs() []streamFunc { return []streamFunc{streamGo} }

var peaks []Peak
