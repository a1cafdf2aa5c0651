/*
 * files.h - the names inside a model directory (DESIGN: on disk).
 */
#ifndef HEED_MODEL_FILES_H
#define HEED_MODEL_FILES_H

#define MODEL_CONFIG  "config.json"
#define MODEL_VOCAB   "vocab.model"
#define MODEL_WEIGHTS "model.safetensors"

#endif
